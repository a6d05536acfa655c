"""Worker threads: the base of the decode engine and the one-shot engine.

A caller submits a `Call` from any thread. Workers ask the scheduler for rows, run them through a graph and report their
results to the call's listener. Both engines share admission, failure recovery and shutdown; they differ in their loops.

Failures have three levels. A batch that fails is retried, each row alone. An exception that escapes a worker's loop fails the
rows that the worker holds, and the worker is rebuilt. If that fails too, the engine rejects all calls, and its owner is told.
"""

import logging
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic

from triptych_serving.errors import EngineError, InvalidInputError, ServingError, TooLargeError, UnavailableError
from triptych_serving.runtime.process import NICENESS, forget_frames, give_way
from triptych_serving.scheduling.admission import CallQueue, Counters
from triptych_serving.scheduling.request import Call, Listener, RowT
from triptych_serving.scheduling.step_stats import StepStats
from triptych_serving.scheduling.wait_estimator import ExpectedCall

logger = logging.getLogger(__name__)

SHUTTING_DOWN = "the model is shutting down"


class Worker:
    """State of one thread of an engine."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.niceness = NICENESS  # of its thread, where the engine gives way
        self.steps = StepStats()
        self.held: set[Any] = set()  # rows taken from the queue, until they have their result; changed by this thread alone


class Engine(ABC, Generic[RowT]):
    """Takes calls from any thread.

    Args:
        make_queue: makes an empty scheduler.
        workers: one for each thread.
        name: prefix of the threads' names.
        gives_way: the threads yield to the process's main thread.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        make_queue: Callable[[], CallQueue[RowT]],
        workers: Sequence[Worker],
        name: str,
        gives_way: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._make_queue = make_queue
        self._queue = make_queue()
        self._workers: tuple[Worker, ...] = tuple(workers)
        self._gives_way = gives_way
        self._lock = threading.RLock()  # guards the queue and the flags
        self._changed = threading.Condition(self._lock)
        self._stopping = False  # end when there is nothing more to do
        self._aborting = False  # end now
        self._failure = ""  # why the engine cannot go on
        self._on_failure: Callable[[str], None] | None = None
        self._calls: weakref.WeakSet[Call[RowT]] = weakref.WeakSet()  # accepted and not over, or not yet collected
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
    def bytes(self) -> int:
        """Memory of its caches, in bytes."""
        return 0

    @property
    def steps(self) -> StepStats:
        """Durations and sizes of the runs of the graphs so far."""
        return StepStats.total(worker.steps for worker in self._workers)

    def forget(self) -> None:
        """Discard counters and forecasts after the warm-up. No call may be waiting or running."""
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
            self._calls.add(call)
            self._wake()

    def when_failed(self, listener: Callable[[str], None]) -> None:
        """Call a listener, in any thread and with the reason, if the engine cannot go on: it rejects all calls then."""
        with self._changed:
            self._on_failure = listener
        if self._failure:
            listener(self._failure)

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

    def count_rows(self) -> tuple[int, int]:
        """Return the number of running rows and of waiting rows."""
        with self._changed:
            return sum(len(worker.held) for worker in self._workers), self._queue.waiting

    def close(self, drain: bool = True) -> None:
        """Stop: after all accepted calls have their results, or without `drain` at once, failing them. Idempotent."""
        with self._changed:
            self._queue.close(SHUTTING_DOWN)
            self._stopping = True
            self._aborting = self._aborting or not drain
            if self._aborting:
                self._abort()
            self._wake_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._on_failure = None  # it may refer to the model, and so to this engine
        self._release()

    def _abort(self) -> None:
        """Fail the calls that wait. Holds the lock."""
        self._fail(self._queue.drain(), UnavailableError(SHUTTING_DOWN))

    def _work(self, worker: Worker) -> None:
        if self._gives_way:
            give_way(worker.niceness)
        while True:
            try:
                self._run(worker)
                return
            except BaseException as error:  # whatever it is, no call may wait for a thread that has ended
                if not self._restart(worker, error):
                    return

    def _restart(self, worker: Worker, error: BaseException) -> bool:
        """Fail the rows of a worker whose loop failed, and rebuild it. False if that fails: then the engine has failed."""
        logger.error("worker failed: number %d, %d rows: %s", worker.number, len(worker.held), error, exc_info=error)
        with self._changed:
            self._fail({row.call for row in worker.held}, EngineError.of(error))
            worker.held.clear()
        forget_frames(error)
        try:
            self._rebuild(worker)
        except BaseException as cause:
            logger.error("worker could not be rebuilt: number %d: %s", worker.number, cause, exc_info=cause)
            forget_frames(cause)
            self._give_up(f"the engine failed and could not be restarted: {cause}; load the model again")
            return False
        with self._changed:
            self._wake_all()
        return True

    def _give_up(self, failure: str) -> None:
        """Reject all calls from now on. Rows that other workers hold still get their results."""
        with self._changed:
            self._failure = failure
            self._queue.close(failure)
            self._stopping = True
            self._fail(self._queue.drain(), UnavailableError(failure))
            self._wake_all()
            listener = self._on_failure
        if listener is not None:
            listener(failure)

    def _replace_queue(self, error: BaseException) -> None:
        """Fail all calls after a failure of the scheduler, whose state is not known then. Holds the lock."""
        self._fail(list(self._calls), EngineError.of(error))
        queue, self._queue = self._queue, self._make_queue()
        self._queue.counters = queue.counters
        self._queue.close(queue.closed)

    @abstractmethod
    def _run(self, worker: Any) -> None:
        """Serve rows until the engine is closed; runs in the worker's thread."""

    @abstractmethod
    def _rebuild(self, worker: Any) -> None:
        """Make a worker anew whose loop has failed, in its thread."""

    @abstractmethod
    def _wake(self) -> None:
        """Wake the workers that a new call needs."""

    def _wake_all(self) -> None:
        """Wake all workers. Holds the lock."""
        self._changed.notify_all()

    @abstractmethod
    def _release(self) -> None:
        """Give up the model's memory: references to a closed engine must not keep it."""

    def _fail(self, calls: Iterable[Call[Any]], error: ServingError) -> None:
        for call in calls:
            self._queue.fail(call, error)

    def _retry(self, worker: Worker, rows: Sequence[RowT], error: Exception) -> None:
        """Retry each row of a failed batch once more, alone; fail the calls of rows that were alone. Holds the lock."""
        rejected = len(rows) == 1 and isinstance(error, InvalidInputError)  # would be rejected again
        last = [row.call for row in rows if row.alone or rejected]
        if not last:
            logger.warning("batch failed, each row is run alone: %d rows: %s", len(rows), error)
        elif isinstance(error, (InvalidInputError, TooLargeError)):
            self._fail(last, error)
        else:
            logger.error("batch failed: %d rows: %s", len(rows), error, exc_info=error)
            self._fail(last, EngineError.of(error))
        self._queue.retry(row for row in rows if not row.alone and not row.call.over)
        worker.held.difference_update(rows)
        self._wake_all()


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
