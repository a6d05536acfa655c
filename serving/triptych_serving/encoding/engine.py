"""The one-shot engine: batches of many calls for graphs that run once, the next batch prepared while one runs."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from triptych_serving.errors import UnavailableError
from triptych_serving.scheduling.batch_scheduler import BatchLimits, BatchScheduler
from triptych_serving.scheduling.engine import SHUTTING_DOWN, Engine, Worker
from triptych_serving.scheduling.request import Call, Item
from triptych_serving.scheduling.wait_estimator import ExpectedCall, Forecast


class Runner(ABC):
    """A model's work on a batch. Several threads call `prepare` and `finish` at once, and `run` too with several `runs`."""

    @abstractmethod
    def prepare(self, items: Sequence[Item]) -> Any:
        """Assemble the arrays of a batch, in Python and numpy, beside another batch's `run`."""

    @abstractmethod
    def run(self, batch: Any) -> Any:
        """Run the graph; releases the interpreter lock."""

    @abstractmethod
    def finish(self, items: Sequence[Item], outputs: Any) -> None:
        """Write every item's `result`, each a copy: a view would keep the whole batch in memory."""

    def stop(self, batch: Any) -> None:  # noqa: B027
        """End `run` early, from another thread, where a request can make it take for ever: no caller waits for the batch."""

    def warm_up(self) -> None:  # noqa: B027
        """Run once or twice, before any `prepare`, if the first run is slow."""

    def release(self, batch: Any) -> None:  # noqa: B027
        """Reuse the memory of a batch: its results are written, or no caller waits for it, or it failed."""


@dataclass(frozen=True)
class OneShotOptions:
    """Options of a one-shot engine. Raises ValueError: `runs` or `overlap` is 0, so that nothing would ever run."""

    runs: int = 1  # batches that run at once
    limits: BatchLimits = field(default_factory=BatchLimits)
    # Batches that one run may have in progress: a device is handed the next one before it has finished the last. A second
    # batch is only begun if it is large enough to be worth a run of its own.
    overlap: int = 1
    gives_way: bool = False  # the threads yield to the process's main thread

    def __post_init__(self) -> None:
        for name in ("runs", "overlap"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")

    @property
    def worker_count(self) -> int:
        """Number of workers, one more than batches in progress: it prepares the next one or writes the last results."""
        return self.runs * self.overlap + 1


class OneShotWorker(Worker):
    """One thread's batch."""

    planned = False  # it runs, or waits for a run
    batch: Any = None  # while it runs


class OneShotEngine(Engine[Item]):
    """Runs batches of items through a graph; `clock` returns monotonic seconds."""

    _queue: BatchScheduler
    _workers: tuple[OneShotWorker, ...]

    def __init__(self, runner: Runner, options: OneShotOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._runner: Runner | None = runner
        self._runs = options.runs
        self._slots = threading.Semaphore(options.runs * options.overlap)
        workers = [OneShotWorker(number) for number in range(options.worker_count)]
        super().__init__(partial(BatchScheduler, options.limits), workers, "triptych-oneshot", options.gives_way, clock)

    def start(self) -> None:
        """Warm up and start the workers."""
        assert self._runner is not None, "an engine starts once"
        self._runner.warm_up()
        for thread in self._threads:
            thread.start()

    def check(self, expected: ExpectedCall, deadline: float | None = None) -> None:
        if self._queue.rows:  # else `submit` finds all that there is to find
            super().check(expected, deadline)

    def forecast(self, tokens: int) -> Forecast | None:
        """Forecast for an item that joins after so many tokens that are on their way to the queue; None: unknown."""
        with self._changed:
            return self._queue.forecast(tokens)

    def count_rejected(self) -> None:
        """Count a call that was rejected before it came here."""
        with self._changed:
            self._queue.counters.rejected += 1

    def cancel(self, call: Call[Item]) -> None:
        with self._changed:
            super().cancel(call)
            self._stop_runs()

    def _abort(self) -> None:
        super()._abort()
        self._stop_runs()

    def _stop_runs(self) -> None:
        """End the runs that no caller waits for any more, or all if the engine must end now. Holds the lock."""
        for worker in self._workers:
            if worker.batch is not None and (self._aborting or all(item.call.over for item in worker.held)):
                assert self._runner is not None, "workers end before the runner is released"
                self._runner.stop(worker.batch)

    def _wake(self) -> None:
        if self._may_plan():
            self._changed.notify()

    def _release(self) -> None:
        self._runner = None

    @property
    def _planned(self) -> int:
        """Batches that run or wait for a run."""
        return sum([worker.planned for worker in self._workers])

    def _run(self, worker: OneShotWorker) -> None:
        while items := self._next_batch(worker):
            self._serve(items, worker)

    def _rebuild(self, worker: OneShotWorker) -> None:
        worker.planned = False  # the runner belongs to all workers

    def _next_batch(self, worker: OneShotWorker) -> tuple[Item, ...]:
        """Wait for work and plan a batch of it. Empty when the worker must end."""
        with self._changed:
            while not self._aborting:
                if items := self._plan(worker):
                    self._wake()
                    return items
                if self._stopping and not self._queue.waiting:
                    return ()
                self._changed.wait()
            # Batches that failed after the engine was told to end.
            self._fail(self._queue.drain(), UnavailableError(SHUTTING_DOWN))
            return ()

    def _plan(self, worker: OneShotWorker) -> tuple[Item, ...]:
        """Take the worker's next batch out of the queue; empty if it is not time. Holds the lock."""
        try:
            items = self._queue.plan(self._runs - self._planned, self._clock()) if self._may_plan() else ()
        except BaseException as error:
            self._replace_queue(error)
            raise
        worker.held.update(items)
        worker.planned = bool(items)
        return items

    def _may_plan(self) -> bool:
        return self._queue.ready(idle=self._planned < self._runs)

    def _serve(self, items: tuple[Item, ...], worker: OneShotWorker) -> None:
        planned, batch, runner = self._clock(), None, self._runner
        assert runner is not None, "workers end before the runner is released"
        try:
            try:
                batch = runner.prepare(items)
                with self._slots:
                    if not self._begin(items, batch, worker):
                        return
                    began = self._clock()
                    outputs = runner.run(batch)
                    worker.steps.add(self._clock() - began, len(items))
            finally:
                self._leave_run(worker)
            runner.finish(items, outputs)
        except Exception as error:  # the server must survive any failure of a batch
            with self._changed:
                if all(item.call.over for item in items):  # stopped, most likely
                    self._free(items, worker)
                else:
                    self._retry(worker, items, error)
        else:
            self._report(items, worker, planned)
        finally:
            if batch is not None:
                runner.release(batch)

    def _begin(self, items: tuple[Item, ...], batch: Any, worker: OneShotWorker) -> bool:
        """Start a run. False if no caller waits for the batch any more."""
        with self._changed:
            now = self._clock()
            if self._aborting:
                self._fail([item.call for item in items], UnavailableError(SHUTTING_DOWN))
            alive = [item for item in items if not self._queue.expire(item.call, now)]
            if not alive:
                self._free(items, worker)
                return False
            for item in alive:
                item.started = now
            worker.batch = batch
            return True

    def _free(self, items: tuple[Item, ...], worker: OneShotWorker) -> None:
        """Give up a batch that no caller waits for. Holds the lock."""
        worker.held.clear()
        self._queue.counters.freed += len(items)

    def _leave_run(self, worker: OneShotWorker) -> None:
        with self._changed:
            worker.planned, worker.batch = False, None
            if self._stopping:
                self._changed.notify_all()
            else:
                self._wake()

    def _report(self, items: tuple[Item, ...], worker: OneShotWorker, planned: float) -> None:
        """Call the listeners of complete calls, without the lock: they may take their time."""
        with self._changed:
            now = self._clock()
            for item in items:
                item.ended = now
            self._queue.served(now - planned)
            complete = [call for item in items if (call := item.call).count_down()]
            worker.held.clear()
            for call in complete:
                self._queue.finish(call, now)
        for call in complete:
            call.notify_end()
