"""The one-shot engine: batches of many calls for graphs that run once, the next one prepared while one runs."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from triptych_serving.errors import EngineError, ServingError, UnavailableError
from triptych_serving.runtime.process import give_way
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.batch_scheduler import BatchLimits, BatchScheduler, Ticket
from triptych_serving.scheduling.request import Call, Item
from triptych_serving.scheduling.step_stats import StepStats
from triptych_serving.scheduling.wait_estimator import ExpectedCall, Forecast

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """What a model does with a batch. `prepare` and `finish` are called by several threads at once, and so is `run`
    if the engine has several `runs`."""

    def prepare(self, items: Sequence[Item]) -> Any:
        """Assemble the arrays of a batch, in Python and numpy; runs beside another batch's `run`."""

    def run(self, batch: Any) -> Any:
        """Run the graph; releases the interpreter lock."""

    def finish(self, items: Sequence[Item], outputs: Any) -> None:
        """Write every item's `result`, each its own copy: a view would keep the whole batch in memory."""


@runtime_checkable
class WarmRunner(Protocol):
    """A runner that is slow at first, unless it is warmed up before the engine takes calls."""

    def warm_up(self) -> None:
        """Run once or twice, before any `prepare`."""


@runtime_checkable
class HoldingRunner(Protocol):
    """A runner whose batches hold memory that is used again."""

    def release(self, batch: Any) -> None:
        """The batch is done with: its results are written, or nobody waits for it, or it failed."""


class _Released:
    """Stands for the runner of a closed engine: whoever still knows the engine shall not keep the model's memory."""

    def prepare(self, items: Sequence[Item]) -> Any:
        raise UnavailableError("the model is shutting down")

    def run(self, batch: Any) -> Any:
        raise UnavailableError("the model is shutting down")

    def finish(self, items: Sequence[Item], outputs: Any) -> None:
        raise UnavailableError("the model is shutting down")


@dataclass(frozen=True)
class OneShotOptions:
    """How a one-shot engine is built.

    Raises:
        ValueError: there are no runs, or no batch fits into one, so nothing would ever be answered.
    """

    runs: int = 1  # batches that run at once
    limits: BatchLimits = field(default_factory=BatchLimits)
    # Batches that one run may have on their way: a device is handed the next one before it is done with the last. A second
    # one is only begun if it is worth it by itself.
    overlap: int = 1
    gives_way: bool = False  # its threads do, to the process's main one

    def __post_init__(self) -> None:
        for name in ("runs", "overlap"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")

    @property
    def threads(self) -> int:
        """One more than batches on their way: it prepares the next one, or writes the results of the last."""
        return self.runs * self.overlap + 1


class OneShotEngine:
    """Takes calls from any thread.

    Args:
        runner: the model.
        options: runs and limits.
        clock: monotonic seconds.
    """

    def __init__(self, runner: Runner, options: OneShotOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._runner: Runner = runner
        self._holding = runner if isinstance(runner, HoldingRunner) else None
        self._runs = options.runs
        self._gives_way = options.gives_way
        self._clock = clock
        self._limits = options.limits
        self._former = BatchScheduler(options.limits)
        self._changed = threading.Condition()
        self._slots = threading.Semaphore(options.runs * options.overlap)
        self._planned = 0  # batches that run or wait for it
        self._items = 0  # in all batches
        self._stopping = False  # end when there is nothing more to do
        self._aborting = False  # end now
        self._steps = [StepStats() for _ in range(options.threads)]
        self._threads = [
            threading.Thread(target=self._work, args=(steps,), name=f"triptych-oneshot-{index}", daemon=True)
            for index, steps in enumerate(self._steps)
        ]

    @property
    def bytes(self) -> int:
        """It has no caches."""
        return 0

    @property
    def counters(self) -> Counters:
        """How calls ended so far."""
        with self._changed:
            return replace(self._former.counters)

    @property
    def steps(self) -> StepStats:
        """What runs of the graph took so far, and how many rows each had."""
        return StepStats.total(self._steps)

    def start(self) -> None:
        """Warm up and start the workers."""
        if isinstance(self._runner, WarmRunner):
            self._runner.warm_up()
        for thread in self._threads:
            thread.start()

    def forget(self) -> None:
        """Calls so far were no real ones: they count neither in the counters nor in forecasts. None may be left."""
        with self._changed:
            self._former = BatchScheduler(self._limits)

    def submit(self, call: Call[Item]) -> None:
        """Queue a call; its listener hears of the end.

        Raises:
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full, or the call would wait too long.
            UnavailableError: the engine is shutting down.
            DeadlineError: the deadline has passed.
        """
        with self._changed:
            self._former.submit(call, self._clock())
            if self._may_plan():
                self._changed.notify()

    def check(self, expected: ExpectedCall, deadline: float | None = None) -> None:
        """Refuse a call before the work of making its items, if it is expected to be refused.

        Waits for nobody: while the engine itself is about its queue, a call passes, and is checked when it is submitted.

        Raises:
            ServingError: as `submit`.
        """
        if not self._changed.acquire(blocking=False):
            return
        try:
            self._former.check(expected, deadline, self._clock())
        finally:
            self._changed.release()

    def cancel(self, call: Call[Item]) -> None:
        """Drop a call: what waits will not run, what runs is thrown away."""
        with self._changed:
            self._former.cancel(call, self._clock())

    def forecast(self, tokens: int) -> Forecast | None:
        """For an item that joins after so many tokens that are on their way to the queue; None: too little is known."""
        with self._changed:
            return self._former.forecast(tokens)

    def count_rejected(self) -> None:
        """A call was turned away before it came here."""
        with self._changed:
            self._former.counters.rejected += 1

    def load(self) -> tuple[int, int]:
        """Rows in batches, the one prepared ahead included; rows that wait."""
        with self._changed:
            return self._items, self._former.waiting

    def close(self, drain: bool = True) -> None:
        """Stop: with `drain`, after everything accepted is answered; else after what runs, failing what waits. Idempotent."""
        with self._changed:
            self._former.close()
            self._stopping = True
            self._aborting = self._aborting or not drain
            if self._aborting:
                self._fail(self._former.drain())
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._runner, self._holding = _Released(), None

    def _work(self, steps: StepStats) -> None:
        if self._gives_way:
            give_way()
        while tickets := self._next_batch():
            self._serve(tickets, steps)

    def _next_batch(self) -> tuple[Ticket, ...]:
        """Wait for work and plan a batch of it. Empty when the worker shall end."""
        with self._changed:
            while not self._aborting:
                if self._may_plan() and (tickets := self._former.plan(self._runs - self._planned, self._clock())):
                    self._planned += 1
                    self._items += len(tickets)
                    if self._may_plan():
                        self._changed.notify()
                    return tickets
                if self._stopping and not self._former.waiting:
                    return ()
                self._changed.wait()
            self._fail(self._former.drain())  # what failed after the engine was told to end
            return ()

    def _may_plan(self) -> bool:
        return self._former.ready(idle=self._planned < self._runs)

    def _serve(self, tickets: tuple[Ticket, ...], steps: StepStats) -> None:
        items, planned, batch = [ticket.item for ticket in tickets], self._clock(), None
        try:
            try:
                batch = self._runner.prepare(items)
                with self._slots:
                    if not self._begin(tickets):
                        return
                    began = self._clock()
                    outputs = self._runner.run(batch)
                    steps.add(self._clock() - began, len(items))
            finally:
                self._leave_run()
            self._runner.finish(items, outputs)
        except Exception as error:  # whatever it is, the server must live on
            self._recover(tickets, error)
        else:
            self._report(tickets, planned)
        finally:
            if self._holding is not None and batch is not None:
                self._holding.release(batch)

    def _begin(self, tickets: tuple[Ticket, ...]) -> bool:
        """A run is free. False if nobody waits for the batch any more."""
        with self._changed:
            now = self._clock()
            if self._aborting:
                self._fail([ticket.call for ticket in tickets])
            alive = [ticket for ticket in tickets if not self._former.is_dead(ticket.call, now)]
            if not alive:
                self._items -= len(tickets)
                self._former.counters.freed += len(tickets)
            for ticket in alive:
                ticket.item.started = now
            return bool(alive)

    def _leave_run(self) -> None:
        with self._changed:
            self._planned -= 1
            if self._stopping:
                self._changed.notify_all()
            elif self._may_plan():
                self._changed.notify()

    def _report(self, tickets: tuple[Ticket, ...], planned: float) -> None:
        """Tell the listeners of the calls that are complete, without the lock: they may take their time."""
        with self._changed:
            now = self._clock()
            self._items -= len(tickets)
            for ticket in tickets:
                ticket.item.ended = now
            self._former.served(now - planned)
            complete = [ticket.call for ticket in tickets if ticket.call.count_down()]
            for call in complete:
                self._former.finish(call, now)
        for call in complete:
            call.listener.on_end()

    def _recover(self, tickets: tuple[Ticket, ...], error: Exception) -> None:
        """The runtime failed: items that shared a batch are tried once more alone, an item that was alone has its answer."""
        logger.error("a batch of %d items failed: %s", len(tickets), error, exc_info=error)
        cause = EngineError.of(error)
        with self._changed:
            self._items -= len(tickets)
            for ticket in tickets:
                if ticket.item.alone:
                    self._fail([ticket.call], cause)
            self._former.retry(ticket for ticket in tickets if not ticket.item.alone and not ticket.call.over)
            self._changed.notify_all()

    def _fail(self, calls: Sequence[Call[Item]], error: ServingError | None = None) -> None:
        for call in calls:
            self._former.counters.failed += not call.over
            call.fail(error or UnavailableError("the model is shutting down"))
