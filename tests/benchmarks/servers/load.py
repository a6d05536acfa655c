"""Requests for a server, from several processes: one Python process cannot send as many as a GPU answers.

Each process has its share of the rate, or of the requests in flight; together, Poisson processes are one Poisson process.
"""

import asyncio
import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from candidates.candidate import Decoding
from grpc import aio

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_bench.load.log import Log
from triptych_bench.load.loops import run_closed_loop, run_open_loop

FAILED = float("inf")
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
Method = Callable[[aio.Channel], Callable[..., Any]]  # of a stub on a channel
Requests = tuple[Method, list[Any]]
_held: list[Requests] = []  # in a process that sends


@dataclass(frozen=True)
class Load:
    """Latencies of a server at a rate, in seconds."""

    rate: float  # requests sent per second
    latencies: tuple[float, ...]  # from the scheduled moment; infinite for failures
    lags: tuple[float, ...]  # delays of the load generator
    seconds: float  # from the first scheduled moment to the last response

    @property
    def failed(self) -> int:
        return sum(latency == FAILED for latency in self.latencies)

    @property
    def throughput(self) -> float:
        """Responses per second."""
        return (len(self.latencies) - self.failed) / self.seconds

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latencies."""
        return float(np.percentile(self.latencies, percent, method="higher"))

    @property
    def lag(self) -> float:
        """99th percentile of the delays."""
        return float(np.percentile(self.lags, 99, method="higher"))


class Generators:
    """Processes that send requests; see `generators`.

    Args:
        pool: Processes that hold the requests.
        count: Number of processes.
        requests: Number of requests.
    """

    def __init__(self, pool: ProcessPoolExecutor, count: int, requests: int) -> None:
        self._pool, self._count, self.requests = pool, count, requests

    def open_loop(self, address: str, rate: float, seconds: float, seed: int, timeout: float) -> Load:
        """Send requests at random moments, whether or not earlier ones have a response."""
        shares = [(address, rate / self._count, seconds, seed * self._count + number, timeout) for number in range(self._count)]
        loads = list(self._pool.map(_open, shares, chunksize=1))
        latencies = tuple(latency for load in loads for latency in load.latencies)
        lags = tuple(lag for load in loads for lag in load.lags)
        return Load(rate, latencies, lags, max(load.seconds for load in loads))

    def closed_loop(self, address: str, in_flight: int, most: int | None = None) -> float:
        """Return the seconds until each request, or the first `most`, has a response."""
        share = max(1, in_flight // self._count)
        parts = [(address, slice(number, most, self._count), share) for number in range(self._count)]
        return max(self._pool.map(_closed, parts, chunksize=1))


@contextmanager
def generators(count: int, make: Callable[[], Requests], requests: int) -> Iterator[Generators]:
    """Start processes that hold the requests which `make` returns there, on the CPUs that this process may use now."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _hold, (make,)) as pool:
        yield Generators(pool, count, requests)


def translation_requests(texts: Sequence[str], model: str, decoding: Decoding) -> Requests:
    """Make a request for each text, with nothing left to the model's defaults."""
    options = translation_pb2.DecodingOptions(
        beam_size=decoding.beam,
        patience=1.0,
        length_penalty=1.0,
        min_length=decoding.least,
        max_length=decoding.limit,
        split_sentences=translation_pb2.SPLIT_SENTENCES_OFF,
    )
    return _translate, [translation_pb2.TranslateRequest(contents=[text], model=model, options=options) for text in texts]


def _translate(channel: aio.Channel) -> Callable[..., Any]:
    return translation_pb2_grpc.TranslationServiceStub(channel).Translate


def _hold(make: Callable[[], Requests]) -> None:
    _held[:] = [make()]
    gc.freeze()  # collections before each run look at what is new alone
    gc.disable()  # a pause of the generator would look like one of the server


def _open(share: tuple[str, float, float, int, float]) -> Load:
    address, rate, seconds, seed, timeout = share
    [(method, requests)] = _held
    gc.collect()
    log = asyncio.run(_send(address, method, requests, timeout, partial(run_open_loop, rate=rate, seconds=seconds, seed=seed)))
    latencies = tuple(record.latency if record.ok else FAILED for record in log.records)
    lags = tuple(max(0.0, record.sent - record.due) for record in log.records)
    last = max((record.received for record in log.records), default=0.0)
    return Load(rate, latencies, lags, last - min((record.due for record in log.records), default=0.0))


def _closed(part: tuple[str, slice, int]) -> float:
    address, chosen, in_flight = part
    [(method, requests)] = _held
    gc.collect()
    return send_all(address, method, requests[chosen], in_flight) if requests[chosen] else 0.0


def send_all(address: str, method: Method, requests: Sequence[Any], in_flight: int) -> float:
    """Send each request once, with a fixed number in flight, and return the seconds from the first to the last response.

    Raises:
        RuntimeError: A request failed.
    """
    log = asyncio.run(_send(address, method, requests, None, partial(run_closed_loop, concurrency=in_flight)))
    if log.messages:
        raise RuntimeError(f"{address}: {log.messages}")
    return max(record.received for record in log.records) - min(record.sent for record in log.records)


async def _send(address: str, method: Method, requests: Sequence[Any], timeout: float | None, run: Callable[..., Any]) -> Log:
    async with aio.insecure_channel(address, OPTIONS) as channel:
        await channel.channel_ready()
        log: Log = await run(partial(method(channel), timeout=timeout), requests)
        return log
