"""Closed loops, with a fixed number of requests in flight, and open loops, with requests at scheduled moments."""

import asyncio
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from grpc import RpcError

from triptych_bench.load.log import Log
from triptych_bench.target import OK, Outcome, Request, Sample, UnaryCaller, failed

MOST_THREADS = 16  # with more callers, an event loop costs less than threads that take turns
FAILED_SECONDS = 0.02  # pause of a closed loop after a failure, so as not to flood a server that rejects requests


@dataclass(frozen=True)
class SampleBatch:
    """Samples that are sent in one request."""

    request: Request
    samples: tuple[Sample, ...]


def shuffled(count: int, seed: int) -> Iterator[int]:
    """Yield the numbers from 0 to `count` - 1 in random order, again and again."""
    rng = random.Random(seed)
    while count:  # with none, a loop fails instead of waiting for ever
        numbers = list(range(count))
        rng.shuffle(numbers)
        yield from reversed(numbers)


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Yield the seconds of a Poisson process with `rate` events per second, without end, as MLPerf Inference's server scenario.

    The gaps depend on the seed alone, so that a slow server cannot delay later requests (coordinated omission).
    """
    rng = random.Random(f"{rate!r} {seed}")
    now = 0.0
    while True:
        now += rng.expovariate(rate)
        yield now


class LoadLoop:
    """Sends the batches in random order, from `close` or `open` until `stop`.

    Args:
        send: Sends one request and waits; failures are outcomes, too.
        caller: Makes a caller for a thread, or returns None if only `send` can be used.
    """

    def __init__(
        self,
        send: Callable[[Request], Awaitable[Outcome]],
        caller: Callable[[], UnaryCaller | None],
        batches: Sequence[SampleBatch],
        seed: int,
        log: Log,
    ) -> None:
        self._send_request, self._caller, self._batches, self._log = send, caller, batches, log
        self._order = shuffled(len(batches), seed)
        self._stopped = False
        self._abandoned = False  # outcomes are no longer recorded
        self._taking = threading.Lock()
        self._left = math.inf  # requests to send
        self._scheduler: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._callers: list[UnaryCaller] = []  # of threads
        self._fault: BaseException | None = None

    def close(self, concurrency: int, most: int | None = None) -> None:
        """Start a closed loop: each response is followed by the next request, up to `most` requests."""
        self._left = math.inf if most is None else most
        if concurrency <= MOST_THREADS:
            made = [self._caller() for _ in range(concurrency)]
            self._callers = [caller for caller in made if caller is not None]
        if self._callers:
            threads = ThreadPoolExecutor(len(self._callers), "triptych-bench")
            for caller in self._callers:
                self._add(asyncio.get_running_loop().run_in_executor(threads, self._call_repeatedly, caller))
            threads.shutdown(wait=False)  # each thread ends with its loop
        for _ in range(concurrency - len(self._callers)):
            self._add(asyncio.create_task(self._send_repeatedly()))

    def open(self, arrivals: Iterator[float]) -> None:
        """Start an open loop: send each request at its moment, however many are in flight."""
        self._scheduler = asyncio.create_task(self._send_on_schedule(arrivals))
        self._add(self._scheduler)

    async def stop(self, drain: bool = True) -> None:
        """Stop sending; then wait for the responses or, without `drain`, cancel the requests."""
        self._stopped = True
        if self._scheduler is not None:  # the next moment may be far away
            self._scheduler.cancel()
        if not drain:
            self._abandoned = True
            for caller in self._callers:
                caller.close()
            for task in self._tasks:
                if isinstance(task, asyncio.Task):  # a thread ends with its call
                    task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def busy(self) -> bool:
        """True while requests are in flight or to be sent."""
        return bool(self._tasks)

    def check(self) -> None:
        """Raise the exception that has ended a task: a fault of the target, not an outcome."""
        if self._fault is not None:
            raise self._fault

    def _add(self, task: asyncio.Future[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    async def _send_repeatedly(self) -> None:
        while (batch := self._next()) is not None:
            outcome = await self._send_request(self._batches[batch].request)
            self._log.end(batch, None, outcome)
            if not outcome.ok:
                await asyncio.sleep(FAILED_SECONDS)

    def _call_repeatedly(self, caller: UnaryCaller) -> None:
        """Send requests in a thread."""
        try:
            while (batch := self._next()) is not None:
                outcome = caller.send(self._batches[batch].request)
                if self._abandoned:
                    return
                self._log.end(batch, None, outcome)
                self._log.thread_seconds[threading.get_ident()] = time.thread_time()
                if not outcome.ok:
                    time.sleep(FAILED_SECONDS)
        finally:
            caller.close()

    def _next(self) -> int | None:
        """Return the index of the next batch, or None at the end of the loop."""
        with self._taking:
            if self._stopped or self._left <= 0:
                return None
            self._left -= 1
            return next(self._order)

    async def _send_on_schedule(self, arrivals: Iterator[float]) -> None:
        start = time.perf_counter()
        for offset in arrivals:
            due = start + offset
            # Even if the request is late, sleep(0) lets the event loop process responses.
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._log.dues.append(due)
            self._add(asyncio.create_task(self._send(next(self._order), due)))

    async def _send(self, batch: int, due: float) -> None:
        outcome = await self._send_request(self._batches[batch].request)
        self._log.end(batch, due, outcome)


def _script_loop(call: Callable[[Any], Awaitable[Any]], requests: Sequence[Any], seed: int) -> tuple[LoadLoop, Log]:
    async def send(request: Any) -> Outcome:
        sent = time.perf_counter()
        try:
            response = await call(request)
        except RpcError as error:
            return failed(error, sent)
        return Outcome(OK, sent, time.perf_counter(), response=response)

    log = Log()
    return LoadLoop(send, lambda: None, [SampleBatch(request, ()) for request in requests], seed, log), log


async def run_closed_loop(
    call: Callable[[Any], Awaitable[Any]],
    requests: Sequence[Any],
    concurrency: int,
    *,
    count: int | None = None,
    seconds: float = math.inf,
    seed: int = 1,
) -> Log:
    """Send requests with a fixed number in flight.

    Args:
        call: Sends one request, such as a method of a grpc.aio stub; failures of gRPC become records, others are raised.
        requests: Sent in random order, each once before one is sent again.
        concurrency: Requests in flight.
        count: Requests in total; by default, each once or, with `seconds`, any number.
        seconds: Time after which no request is sent.
        seed: Determines the order.

    Returns:
        One record per request, in the order of the responses.
    """
    loop, log = _script_loop(call, requests, seed)
    loop.close(concurrency, len(requests) if count is None and seconds == math.inf else count)
    await _finish(loop, seconds)
    return log


async def run_open_loop(
    call: Callable[[Any], Awaitable[Any]], requests: Sequence[Any], rate: float, seconds: float, *, seed: int = 1
) -> Log:
    """Send requests at the moments of a Poisson process, whether or not earlier ones have a response.

    Args:
        call: As for `run_closed_loop`.
        requests: As for `run_closed_loop`.
        rate: Requests per second.
        seconds: Length of the schedule; the responses to its requests are waited for.
        seed: Determines moments and order.

    Returns:
        One record per request; `Outcome.latency` counts from the scheduled moment.
    """
    loop, log = _script_loop(call, requests, seed)
    loop.open(takewhile(lambda moment: moment < seconds, poisson(rate, seed)))
    await _finish(loop)
    return log


async def _finish(loop: LoadLoop, seconds: float = math.inf) -> None:
    end = time.perf_counter() + seconds
    try:
        while loop.busy and time.perf_counter() < end:
            await asyncio.sleep(0.001)
        await loop.stop()
        loop.check()
    finally:
        await loop.stop(drain=False)
