"""The decode engine: worker threads that step rows of many calls together (iteration-level batching; Yu et al. 2022).

Every worker owns one lane (slots and caches); all share the sessions, and with them one copy of the weights. Between two
steps a worker asks the scheduler who leaves and who joins.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from triptych_serving.errors import CancelledError, EngineError, UnavailableError
from triptych_serving.lane import GreedyLane
from triptych_serving.row import Call, Row
from triptych_serving.scheduler import Job, Scheduler, SchedulerLimits

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineOptions:
    """How an engine is built."""

    workers: int = 1  # threads that step; one a CPU is fastest
    slots: int = 32  # rows that one worker steps at once
    limits: SchedulerLimits = field(default_factory=SchedulerLimits)


class Engine:
    """Takes calls from any thread.

    Args:
        make_lane: builds one worker's lane.
        options: workers and limits.
        clock: monotonic seconds.
    """

    def __init__(
        self, make_lane: Callable[[], GreedyLane], options: EngineOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._scheduler = Scheduler(options.limits)
        self._changed = threading.Condition()
        self._lanes = [make_lane() for _ in range(options.workers)]
        self._stopping = False  # end when there is nothing more to do
        self._aborting = False  # end now
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"triptych-engine-{index}", daemon=True)
            for index, lane in enumerate(self._lanes)
        ]

    @property
    def bytes(self) -> int:
        """Memory of all caches, in bytes."""
        return sum(lane.bytes for lane in self._lanes)

    def start(self) -> None:
        """Warm up and start the workers."""
        for lane in self._lanes:
            lane.warm_up()
        for thread in self._threads:
            thread.start()

    def submit(self, call: Call[Row]) -> None:
        """Queue a call; its listener hears of the end.

        Raises:
            OverloadedError: the queue is full.
            UnavailableError: the engine is shutting down.
            DeadlineError: the deadline has passed.
        """
        with self._changed:
            self._scheduler.submit(call, self._clock())
            self._changed.notify_all()

    def cancel(self, call: Call[Row]) -> None:
        """Drop a call; its rows leave before the next step."""
        with self._changed:
            call.fail(CancelledError("the caller went away"))

    def load(self) -> tuple[int, int]:
        """Rows that run, rows that wait."""
        with self._changed:
            return sum(len(lane.jobs) for lane in self._lanes), self._scheduler.waiting

    def close(self, drain: bool = True) -> None:
        """Stop: with `drain`, after everything accepted is answered; else at once, failing what is left. Idempotent."""
        with self._changed:
            self._scheduler.close()
            self._stopping = True
            self._aborting = self._aborting or not drain
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self, lane: GreedyLane) -> None:
        while self._next_plan(lane):
            try:
                ended = lane.step()
            except Exception as error:  # whatever it is, the server must live on
                self._recover(lane, error)
            else:
                self._report(lane, ended)

    def _next_plan(self, lane: GreedyLane) -> bool:
        """Let rows leave and join; wait while there is nothing to do. False when the worker shall end."""
        while True:
            with self._changed:
                if self._aborting:
                    self._abort(lane)
                    return False
                plan = self._scheduler.plan(lane.jobs, lane.free, self._idle_workers(), self._clock())
                if not (plan.join or lane.jobs):
                    if self._stopping:
                        return False
                    self._changed.wait()
                    continue
            lane.leave(plan.leave)
            if self._join(lane, plan.join) and lane.jobs:
                return True

    def _abort(self, lane: GreedyLane) -> None:
        """Fail what this worker runs, and what waits for any."""
        for call in (*(job.call for job in lane.jobs), *self._scheduler.drain()):
            call.fail(UnavailableError("the model is shutting down"))
        lane.leave(tuple(lane.jobs))

    def _join(self, lane: GreedyLane, jobs: tuple[Job, ...]) -> bool:
        now = self._clock()
        for job in jobs:
            job.row.started = now
        try:
            lane.join(jobs)
        except Exception as error:
            self._recover(lane, error, jobs)
            return False
        return True

    def _idle_workers(self) -> int:
        return sum(not lane.jobs for lane in self._lanes)

    def _report(self, lane: GreedyLane, ended: list[Job]) -> None:
        """Tell the listeners what the step brought."""
        now = self._clock()
        with self._changed:
            for job in (*ended, *lane.jobs):
                row = job.row
                if not row.first_token:
                    row.first_token = now
                if job.call.streams and not job.call.over and row.finish is None:
                    job.call.listener.on_token(row)
            for job in ended:
                job.row.ended = now
                job.call.row_ended()

    def _recover(self, lane: GreedyLane, error: Exception, joining: tuple[Job, ...] = ()) -> None:
        """The runtime failed: rows that shared a batch are tried once more alone, a row that was alone has its answer."""
        jobs = list(dict.fromkeys((*lane.jobs, *joining)))
        logger.error("a batch of %d rows failed: %s", len(jobs), error, exc_info=error)
        cause = error if isinstance(error, EngineError) else EngineError(f"the runtime failed: {error}")
        lane.leave(tuple(lane.jobs))
        with self._changed:
            for job in jobs:
                if job.row.alone:
                    job.call.fail(cause)
            self._scheduler.retry(job for job in jobs if not job.row.alone and not job.call.over)
            self._changed.notify_all()
