"""Worker threads: the base of the decode engine and the one-shot engine.

A caller submits a `Call` from any thread. Workers ask the scheduler for rows, run them through a graph and report their
results to the call's listener. Both engines share admission, failure recovery and shutdown; they differ in their loops.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic

from triptych_serving.errors import EngineError, ServingError, UnavailableError
from triptych_serving.runtime.process import give_way
from triptych_serving.scheduling.admission import CallQueue, Counters
from triptych_serving.scheduling.request import Call, Listener, RowT
from triptych_serving.scheduling.step_stats import StepStats
from triptych_serving.scheduling.wait_estimator import ExpectedCall

logger = logging.getLogger(__name__)


class Worker:
    """State of one thread of an engine."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps = StepStats()


class Engine(ABC, Generic[RowT]):
    """Takes calls from any thread.

    Args:
        make_queue: makes an empty scheduler.
        workers: one for each thread.
        name: prefix of the threads' names.
        lowers_priority: the threads yield to the process's main thread.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        make_queue: Callable[[], CallQueue[RowT]],
        workers: Sequence[Worker],
        name: str,
        lowers_priority: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._make_queue = make_queue
        self._queue = make_queue()
        self._workers: tuple[Worker, ...] = tuple(workers)
        self._lowers_priority = lowers_priority
        self._changed = threading.Condition()  # guards the queue and the flags
        self._stopping = False  # end when there is nothing more to do
        self._aborting = False  # end now
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"{name}-{worker.number}", daemon=True)
            for worker in self._workers
        ]

    @property
    def counters(self) -> Counters:
        """Outcomes of calls so far."""
        with self._changed:
            return replace(self._queue.counters)

    @property
    def steps(self) -> StepStats:
        """Durations and sizes of the runs of the graphs so far."""
        return StepStats.total(worker.steps for worker in self._workers)

    def forget(self) -> None:
        """Discard counters and forecasts after warm-up calls; none of them may be left."""
        with self._changed:
            self._queue = self._make_queue()

    def submit(self, call: Call[RowT]) -> None:
        """Queue a call; its listener is called at the end.

        Raises:
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full, or the call would wait too long.
            UnavailableError: the engine is shutting down.
            DeadlineError: the deadline has passed.
        """
        with self._changed:
            self._queue.submit(call, self._clock())
            self._wake()

    def check(self, expected: ExpectedCall, deadline: float | None = None) -> None:
        """Reject a call before the work of making its rows, if `submit` is expected to reject it.

        Does not block: while a worker holds the queue the call passes, and is checked when it is submitted.

        Raises:
            ServingError: as `submit`.
        """
        if not self._changed.acquire(blocking=False):
            return
        try:
            self._queue.check(expected, deadline, self._clock())
        finally:
            self._changed.release()

    def cancel(self, call: Call[RowT]) -> None:
        """Drop a call; its rows leave the queue, and a lane before its next step."""
        with self._changed:
            self._queue.cancel(call, self._clock())

    def load(self) -> tuple[int, int]:
        """Return the number of running rows and of waiting rows."""
        with self._changed:
            return self._count_running(), self._queue.waiting

    def close(self, drain: bool = True) -> None:
        """Stop: after all accepted calls have their results, or without `drain` at once, failing them. Idempotent."""
        with self._changed:
            self._queue.close()
            self._stopping = True
            self._aborting = self._aborting or not drain
            if self._aborting:
                self._fail(self._queue.drain())
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._release()

    def _work(self, worker: Worker) -> None:
        if self._lowers_priority:
            give_way()
        self._run(worker)

    @abstractmethod
    def _run(self, worker: Any) -> None:
        """Serve rows until the engine is closed; runs in the worker's thread."""

    @abstractmethod
    def _wake(self) -> None:
        """Wake the workers that a new call needs."""

    @abstractmethod
    def _count_running(self) -> int:
        """Return the number of rows that have left the queue and are not done."""

    @abstractmethod
    def _release(self) -> None:
        """Give up the model's memory: references to a closed engine must not keep it."""

    def _fail(self, calls: Iterable[Call[RowT]], error: ServingError | None = None) -> None:
        for call in calls:
            self._queue.fail(call, error or shutting_down())

    def _retry(self, rows: Sequence[RowT], error: Exception) -> None:
        """Retry each row of a failed batch once more, alone; fail the calls of rows that were alone. Holds the lock."""
        logger.error("batch failed: %d rows: %s", len(rows), error, exc_info=error)
        cause = EngineError.of(error)
        self._fail([row.call for row in rows if row.alone], cause)
        self._queue.retry(row for row in rows if not row.alone and not row.call.over)
        self._changed.notify_all()


def shutting_down() -> UnavailableError:
    """Make the error for calls of an engine that is closed."""
    return UnavailableError("the model is shutting down")


class _Waiter(Listener):
    def __init__(self) -> None:
        self.done = threading.Event()

    def on_end(self) -> None:
        self.done.set()


def run_rows(engine: Engine[RowT], rows: Sequence[RowT], field: str = "contents") -> None:
    """Run rows, which come from the request's `field`, and wait for the last one.

    Raises:
        ServingError: the call as a whole failed.
    """
    if not rows:
        return
    waiter = _Waiter()
    call = Call(rows, waiter, field=field)
    engine.submit(call)
    try:
        waiter.done.wait()
    except BaseException:  # Ctrl-C: stop the work that no caller waits for any more
        engine.cancel(call)
        raise
    if call.error is not None:
        raise call.error
