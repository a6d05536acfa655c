"""Requests from several processes: one Python process cannot send as many as a GPU answers.

Each has its share of the rate, or of the requests in flight; Poisson processes together are one.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import load
from candidate import Decoding
from load import Load, Request

_held: list[Request] = []


class Generators:
    """Made by `generators`.

    Args:
        pool: of processes that hold the requests.
        count: of them.
    """

    def __init__(self, pool: ProcessPoolExecutor, count: int) -> None:
        self._pool, self._count = pool, count

    def open_loop(
        self, address: str, requests: Sequence[Request], rate: float, seconds: float, seed: int, timeout: float
    ) -> Load:
        """As load.open_loop; the requests are those that the processes hold."""
        shares = [(address, rate / self._count, seconds, seed * self._count + number, timeout) for number in range(self._count)]
        loads = list(self._pool.map(_open, shares, chunksize=1))
        return Load(
            rate,
            tuple(latency for part in loads for latency in part.latencies),
            tuple(lag for part in loads for lag in part.lags),
            max(part.seconds for part in loads),
        )

    def closed_loop(self, address: str, requests: Sequence[Request], in_flight: int) -> float:
        """As load.closed_loop: seconds until the last has its answer."""
        share = max(1, in_flight // self._count)
        parts = [(address, number, self._count, len(requests), share) for number in range(self._count)]
        return max(self._pool.map(_closed, parts, chunksize=1))


@contextmanager
def generators(count: int, texts: Sequence[str], model: str, decoding: Decoding) -> Iterator[Generators]:
    """`count` processes with the requests for these texts, on the CPUs that this process may use now."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _hold, (list(texts), model, decoding)) as pool:
        yield Generators(pool, count)


def _hold(texts: Sequence[str], model: str, decoding: Decoding) -> None:
    _held[:] = load.requests_for(texts, model, decoding)


def _open(share: tuple[str, float, float, int, float]) -> Load:
    address, rate, seconds, seed, timeout = share
    return load.open_loop(address, _held, rate, seconds, seed, timeout)


def _closed(part: tuple[str, int, int, int, int]) -> float:
    address, number, count, requests, in_flight = part
    mine = _held[number:requests:count]
    return load.closed_loop(address, mine, in_flight) if mine else 0.0
