"""Rising rates: how high each server gets."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from load import Load, Request, open_loop

SETTLE_SECONDS = 0.5
MISSES = 2  # in a row, and a server is out
TIMEOUTS = 20  # a request is given up after so many times the limit
Generate = Callable[[str, Sequence[Request], float, float, int, float], Load]  # as open_loop


@dataclass(frozen=True)
class Rung:
    """What a server made of a rate: medians of the rounds, milliseconds."""

    server: str
    rate: float
    p50: float
    p90: float
    p99: float
    throughput: float  # answers a second
    failed: int  # or given up, over all rounds
    lag: float  # 99th percentile of how late the generator itself was


@dataclass(frozen=True)
class Climb:
    """How rates rise."""

    start: float  # requests a second
    factor: float
    top: float
    seconds: float  # of a round
    rounds: int
    limit_ms: float  # of the 99th percentile


def climb(
    addresses: Mapping[str, str], requests: Sequence[Request], plan: Climb, generate: Generate = open_loop
) -> Iterator[Rung]:
    """All servers take turns at every rate, until they have missed the limit twice in a row."""
    misses = dict.fromkeys(addresses, 0)
    rate = plan.start
    while rate <= plan.top and (left := [name for name, count in misses.items() if count < MISSES]):
        loads: dict[str, list[Load]] = {name: [] for name in left}
        for seed in range(plan.rounds):
            for place in range(len(left)):
                name = left[(place + seed) % len(left)]
                time.sleep(SETTLE_SECONDS)
                timeout = TIMEOUTS * plan.limit_ms / 1_000
                loads[name].append(generate(addresses[name], requests, rate, plan.seconds, seed, timeout))
        for name, rounds in loads.items():
            rung = _rung(name, rate, rounds)
            misses[name] = 0 if _holds(rung, plan.limit_ms) else misses[name] + 1
            yield rung
        rate *= plan.factor


def highest(rungs: Sequence[Rung], limit_ms: float) -> dict[str, float]:
    """The highest rate that each server held; 0 where it held none."""
    best = dict.fromkeys((rung.server for rung in rungs), 0.0)
    for rung in rungs:
        if _holds(rung, limit_ms):
            best[rung.server] = max(best[rung.server], rung.rate)
    return best


def _holds(rung: Rung, limit_ms: float) -> bool:
    return rung.p99 <= limit_ms and not rung.failed


def _rung(name: str, rate: float, loads: Sequence[Load]) -> Rung:
    p50, p90, p99 = (1_000 * statistics.median(load.percentile(percent) for load in loads) for percent in (50, 90, 99))
    throughput = statistics.median(load.throughput for load in loads)
    lag = 1_000 * statistics.median(load.lag for load in loads)
    return Rung(name, rate, p50, p90, p99, throughput, sum(load.failed for load in loads), lag)
