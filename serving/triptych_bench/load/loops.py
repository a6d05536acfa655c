"""Sending: always so many requests at once (closed), or each when it is due (open)."""

import asyncio
import math
import time
from collections.abc import Iterator

from triptych_bench.load.feed import Feed
from triptych_bench.load.log import Log
from triptych_bench.target import Target

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
        self._left = math.inf  # requests to send
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None

    def close(self, concurrency: int, most: int | None = None) -> None:
        """A closed loop: whoever has an answer sends again at once, until there were `most` requests."""
        self._left = math.inf if most is None else most
        for _ in range(concurrency):
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
            for task in self._tasks:
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

    def _add(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._fault is None:
            self._fault = task.exception()

    async def _call_again(self) -> None:
        feed, log, send = self._feed, self._log, self._target.send
        while not self._stopped and self._left > 0:
            self._left -= 1
            batch = feed.take()
            outcome = await send(feed.batches[batch].request)
            log.end(batch, None, outcome)
            if not outcome.ok:
                await asyncio.sleep(FAILED_SECONDS)

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
