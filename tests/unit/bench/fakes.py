"""A target without a server, and records of requests that were never sent."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from triptych_bench.load.log import Log
from triptych_bench.load.loops import SampleBatch
from triptych_bench.target import OK, Counters, Outcome, RawResponse, Request, RequestSpec, Sample, ServerTimes, UnaryCaller


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test in its own event loop."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class FakeTarget:
    """Responds with the request after a while.

    Args:
        seconds: Until the response.
        code: Of every outcome.
        slots: Requests processed at once; the others wait.
    """

    def __init__(self, seconds: float = 0.003, code: str = OK, slots: int = 1_000) -> None:
        self.seconds, self.code = seconds, code
        self.under_way = self.most = self.sent = 0
        self.open_calls = self.close_calls = 0
        self.gate: asyncio.Event | None = None
        self._slots = slots
        self._semaphore: asyncio.Semaphore | None = None

    async def open(self) -> None:
        self.open_calls += 1

    async def close(self) -> None:
        self.close_calls += 1

    async def describe(self) -> dict[str, str]:
        return {"address": "nowhere", "model": "fake"}

    def samples(self, count: int, seed: int) -> list[Sample]:
        return [Sample(f"random {number}") for number in range(count)]

    def prepare(self, samples: Sequence[Sample]) -> Request:
        return [sample.data for sample in samples]

    async def send(self, request: Request) -> Outcome:
        if self._semaphore is None:
            self._semaphore = asyncio.Semaphore(self._slots)
        sent = time.perf_counter()
        self.sent += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            async with self._semaphore:
                await asyncio.sleep(self.seconds)
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.under_way -= 1
        server = ServerTimes(0.0, 0.0, self.seconds / 2, 0.0)
        message = "" if self.code == OK else "no"
        return Outcome(self.code, sent, time.perf_counter(), server=server, tokens=3, response=request, message=message)

    def caller(self) -> UnaryCaller | None:
        return None

    def read(self, response: RawResponse) -> list[str]:
        return [str(part).upper() for part in response]

    async def stats(self) -> Counters | None:
        return {"requests": float(self.sent), "total": self.sent * self.seconds}


class FakeCaller:
    """Blocks until the response, or until it is closed."""

    def __init__(self, target: "ThreadedTarget") -> None:
        self._target = target
        self.closed = threading.Event()

    def send(self, request: Request) -> Outcome:
        target, sent = self._target, time.perf_counter()
        with target.lock:
            target.sent += 1
            target.under_way += 1
            target.most = max(target.most, target.under_way)
        try:
            stopped = self.closed.wait(target.seconds)
        finally:
            with target.lock:
                target.under_way -= 1
        code = "CANCELLED" if stopped else target.code
        return Outcome(code, sent, time.perf_counter(), response=request, message="" if code == OK else "no")

    def close(self) -> None:
        self.closed.set()


class ThreadedTarget(FakeTarget):
    """A target for threads; its event loop must not be used."""

    def __init__(self, seconds: float = 0.001, code: str = OK) -> None:
        super().__init__(seconds, code)
        self.lock = threading.Lock()
        self.callers: list[FakeCaller] = []

    async def send(self, request: Request) -> Outcome:
        raise AssertionError("not from a thread")

    def caller(self) -> "FakeCaller":
        self.callers.append(FakeCaller(self))
        return self.callers[-1]


def batches(count: int = 4, size: int = 1) -> list[SampleBatch]:
    """Make batches of different samples."""
    groups = [tuple(Sample(f"text {number} {place}") for place in range(size)) for number in range(count)]
    return [SampleBatch([sample.data for sample in samples], samples) for samples in groups]


def record(due: float, latency: float, *, lag: float = 0.0, code: str = OK, **members: Any) -> Outcome:
    """Make the record of a request that was sent `lag` after `due`."""
    return Outcome(code, due + lag, due + latency, due=due, **members)


def log_of(*records: Outcome) -> Log:
    """Make a log that was started at 0."""
    log = Log()
    log.started = 0.0
    log.records.extend(records)
    log.dues.extend(each.due for each in records)
    return log


SPEC = RequestSpec(task="translate")
