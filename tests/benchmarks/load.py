"""Requests for a server: as they come (open loop), or always so many in flight (closed loop)."""

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import numpy as np
from candidate import Decoding
from grpc import aio

from triptych.v1 import translation_pb2, translation_pb2_grpc

FAILED = float("inf")
LEAD_SECONDS = 0.1  # before the first request
Request = translation_pb2.TranslateRequest
Call = Callable[[Request], Awaitable[object]]


def requests_for(texts: Sequence[str], model: str, decoding: Decoding) -> list[Request]:
    """One text each; nothing is left to the model's defaults."""
    options = translation_pb2.DecodingOptions(
        beam_size=decoding.beam,
        patience=1.0,
        length_penalty=1.0,
        min_length=decoding.least,
        max_length=decoding.limit,
        split_sentences=translation_pb2.SPLIT_SENTENCES_OFF,
    )
    return [Request(contents=[text], model=model, options=options) for text in texts]


@dataclass(frozen=True)
class Load:
    """What a server made of a rate. Seconds."""

    rate: float  # requests a second that were sent
    latencies: tuple[float, ...]  # from when a request was due; infinite where it failed or took too long
    lags: tuple[float, ...]  # how late requests were sent: the generator's own fault
    seconds: float  # from the first that was due to the last answer

    @property
    def answered(self) -> int:
        return sum(latency < FAILED for latency in self.latencies)

    @property
    def failed(self) -> int:
        return len(self.latencies) - self.answered

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds

    def percentile(self, percent: float) -> float:
        """Of the latencies."""
        return _percentile(self.latencies, percent)

    @property
    def lag(self) -> float:
        """The 99th percentile."""
        return _percentile(self.lags, 99)


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """When requests are due: a Poisson process."""
    rng = random.Random(f"{rate} {seed}")
    times, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        times.append(now)
    return times or [0.0]


def open_loop(address: str, requests: Sequence[Request], rate: float, seconds: float, seed: int, timeout: float) -> Load:
    """Requests at random times, drawn from `requests`, whether or not those before have been answered."""
    due = arrivals(rate, seconds, seed)
    drawn = random.Random(seed).choices(requests, k=len(due))
    with _without_collector():
        return asyncio.run(_open_loop(address, drawn, due, rate, timeout))


def closed_loop(address: str, requests: Sequence[Request], in_flight: int) -> float:
    """Seconds for all requests, so many at a time."""
    with _without_collector():
        return asyncio.run(_closed_loop(address, requests, in_flight))


async def _open_loop(address: str, requests: Sequence[Request], due: Sequence[float], rate: float, timeout: float) -> Load:
    async with aio.insecure_channel(address) as channel:
        call = _call(channel, timeout)
        await call(requests[0])  # connects
        start, lags, tasks = time.perf_counter() + LEAD_SECONDS, [], []
        for request, offset in zip(requests, due, strict=True):
            if (ahead := start + offset - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            lags.append(max(0.0, time.perf_counter() - start - offset))
            tasks.append(asyncio.create_task(_timed(call, request, start + offset)))
        latencies = await asyncio.gather(*tasks)
        return Load(rate, tuple(latencies), tuple(lags), time.perf_counter() - start - due[0])


async def _closed_loop(address: str, requests: Sequence[Request], in_flight: int) -> float:
    async with aio.insecure_channel(address) as channel:
        call = _call(channel, None)
        await call(requests[0])
        waiting = iter(requests)

        async def worker() -> None:
            for request in waiting:
                await call(request)

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        return time.perf_counter() - started


def _call(channel: aio.Channel, timeout: float | None) -> Call:
    stub = translation_pb2_grpc.TranslationServiceStub(channel)
    return lambda request: stub.Translate(request, timeout=timeout)


async def _timed(call: Call, request: Request, due: float) -> float:
    try:
        await call(request)
    except grpc.RpcError:
        return FAILED
    return time.perf_counter() - due


@contextmanager
def _without_collector() -> Iterator[None]:
    """A pause of the generator would look like one of the server."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent, method="higher"))
