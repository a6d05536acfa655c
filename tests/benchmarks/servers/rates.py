"""Rates of closed loops, and the search for the highest rate of each server."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from servers.load import Generators, Load
from triptych_bench.load.loops import run_closed_loop

Name = TypeVar("Name")

SETTLE_SECONDS = 0.5
MISSES = 2  # in a row, then a server is out
TIMEOUTS = 20  # requests time out after this many times the limit


@dataclass(frozen=True)
class RateResult:
    """Medians of the rounds of a server at a rate, in milliseconds."""

    server: str
    rate: float
    p50: float
    p90: float
    p99: float
    throughput: float  # responses per second
    failed: int  # requests, over all rounds
    lag: float  # 99th percentile of the delays of the load generator

    def holds(self, limit_ms: float) -> bool:
        """Return True if the server keeps up with the rate."""
        return self.p99 <= limit_ms and not self.failed


@dataclass(frozen=True)
class RatePlan:
    """Schedule of rising rates."""

    start: float  # requests per second
    factor: float
    top: float
    seconds: float  # of a round
    rounds: int
    limit_ms: float  # of the 99th percentile


def raise_rates(addresses: Mapping[str, str], load: Generators, plan: RatePlan) -> Iterator[RateResult]:
    """Measure all servers in turns at every rate, until they have missed the limit twice in a row."""
    misses = dict.fromkeys(addresses, 0)
    rate = plan.start
    while rate <= plan.top and (left := [name for name, count in misses.items() if count < MISSES]):
        loads: dict[str, list[Load]] = {name: [] for name in left}
        for seed in range(plan.rounds):
            for offset in range(len(left)):
                name = left[(offset + seed) % len(left)]
                time.sleep(SETTLE_SECONDS)
                timeout = TIMEOUTS * plan.limit_ms / 1_000
                loads[name].append(load.open_loop(addresses[name], rate, plan.seconds, seed, timeout))
        for name, rounds in loads.items():
            result = _result(name, rate, rounds)
            misses[name] = 0 if result.holds(plan.limit_ms) else misses[name] + 1
            yield result
        rate *= plan.factor


async def median_loops(
    calls: Mapping[Name, Callable[[Any], Any]], rounds: int, count: int, in_flight: int, inputs: Sequence[Any] = (None,)
) -> dict[Name, tuple[float, float]]:
    """Return the medians of requests per second and p99 latency (ms) of each call, in rounds that they take turns in."""
    found: dict[Name, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            log = await run_closed_loop(call, inputs, in_flight, count=count, seed=turn)
            if log.messages:
                raise RuntimeError(f"{name}: {log.messages}")
            if turn:  # the first warms up
                p99 = float(np.percentile([1_000 * (record.received - record.sent) for record in log.records], 99))
                found[name].append((count / (log.records[-1].received - log.started), p99))
    return {
        name: (statistics.median(r for r, _ in pairs), statistics.median(p for _, p in pairs)) for name, pairs in found.items()
    }


async def median_rates(
    calls: Mapping[Name, Callable[[None], Any]], rounds: int, count: int, in_flight: int
) -> dict[Name, float]:
    """Return the median requests per second of each call, as `median_loops` measures them."""
    return {name: rate for name, (rate, _) in (await median_loops(calls, rounds, count, in_flight)).items()}


def highest(results: Sequence[RateResult], limit_ms: float) -> dict[str, float]:
    """Return the highest rate that each server held, 0 for none."""
    return {
        name: max((result.rate for result in results if result.server == name and result.holds(limit_ms)), default=0.0)
        for name in dict.fromkeys(result.server for result in results)
    }


def _result(name: str, rate: float, loads: Sequence[Load]) -> RateResult:
    p50, p90, p99 = (1_000 * statistics.median(load.percentile(percent) for load in loads) for percent in (50, 90, 99))
    throughput = statistics.median(load.throughput for load in loads)
    lag = 1_000 * statistics.median(load.lag for load in loads)
    return RateResult(name, rate, p50, p90, p99, throughput, sum(load.failed for load in loads), lag)
