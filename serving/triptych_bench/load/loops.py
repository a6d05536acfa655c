"""Sending: always so many requests at once (closed), or each when it is due (open)."""

import asyncio
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from triptych_bench.load.feed import Feed
from triptych_bench.load.log import Log
from triptych_bench.target import Caller, Target

MOST_THREADS = 16  # beyond, an event loop costs less than threads that take turns
FAILED_SECONDS = 0.02  # between a failure and the next request of a closed loop: a server that refuses is not stormed


class Loop:
    """Sends from `close` or `open` to `stop`.

    Args:
        target: to whom.
        feed: what.
        log: gets what becomes of it.
    """

    def __init__(self, target: Target, feed: Feed, log: Log) -> None:
        self._target, self._feed, self._log = target, feed, log
        self._stopped = False
        self._abandoned = False  # nobody wants to know what becomes of the rest
        self._taking = threading.Lock()
        self._left = math.inf  # requests to send
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._callers: list[Caller] = []  # of threads
        self._fault: BaseException | None = None

    def close(self, concurrency: int, most: int | None = None) -> None:
        """A closed loop: whoever has an answer sends again at once, until there were `most` requests."""
        self._left = math.inf if most is None else most
        callers = self._make_callers(concurrency)
        if callers:
            self._start_threads(callers)
        for _ in range(concurrency - len(callers)):
            self._add(asyncio.create_task(self._call_again()))

    def open(self, arrivals: Iterator[float]) -> None:
        """An open loop: each when it is due, however many have not been answered."""
        self._keeper = asyncio.create_task(self._keep_time(arrivals))
        self._add(self._keeper)

    async def stop(self, drain: bool = True) -> None:
        """Send no more; then wait for the answers, or do without."""
        self._stopped = True
        if self._keeper is not None:  # the next may be due in an hour
            self._keeper.cancel()
        if not drain:
            self._abandoned = True
            for caller in self._callers:
                caller.close()
            for task in self._tasks:
                if isinstance(task, asyncio.Task):  # a thread ends by itself when its call has
                    task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def busy(self) -> bool:
        """Something is under way, or will be."""
        return bool(self._tasks)

    def check(self) -> None:
        """Raises what has ended a task: a fault of the target, which is no outcome."""
        if self._fault is not None:
            raise self._fault

    def _add(self, task: asyncio.Future[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    def _make_callers(self, count: int) -> list[Caller]:
        """None where threads are not worth it, or the target has none."""
        if count > MOST_THREADS:
            return []
        return [caller for _ in range(count) if (caller := self._target.caller()) is not None]

    def _start_threads(self, callers: Sequence[Caller]) -> None:
        loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(len(callers), "triptych-bench")
        for caller in callers:
            self._callers.append(caller)
            self._add(loop.run_in_executor(threads, self._call_and_block, caller))
        threads.shutdown(wait=False)  # each ends with its loop

    async def _call_again(self) -> None:
        while (batch := self._next()) is not None:
            outcome = await self._target.send(self._feed.batches[batch].request)
            self._log.end(batch, None, outcome)
            if not outcome.ok:
                await asyncio.sleep(FAILED_SECONDS)

    def _call_and_block(self, caller: Caller) -> None:
        """`_call_again`, in a thread."""
        try:
            while (batch := self._next()) is not None:
                outcome = caller.send(self._feed.batches[batch].request)
                if self._abandoned:
                    return
                self._log.end(batch, None, outcome)
                self._log.thread_seconds[threading.get_ident()] = time.thread_time()
                if not outcome.ok:
                    time.sleep(FAILED_SECONDS)
        finally:
            caller.close()

    def _next(self) -> int | None:
        """The number of a batch; None where the loop is over."""
        with self._taking:
            if self._stopped or self._left <= 0:
                return None
            self._left -= 1
            return self._feed.take()

    async def _keep_time(self, arrivals: Iterator[float]) -> None:
        start = time.perf_counter()
        for offset in arrivals:
            due = start + offset
            # Where it is late already, the answers must have their turn all the same: sleep(0) gives it to them.
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._log.begin(due)
            self._add(asyncio.create_task(self._send(self._feed.take(), due)))

    async def _send(self, batch: int, due: float) -> None:
        outcome = await self._target.send(self._feed.batches[batch].request)
        self._log.end(batch, due, outcome)
