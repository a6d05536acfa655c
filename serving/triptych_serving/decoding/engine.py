"""The decode engine: worker threads that step rows of many calls together (iteration-level batching; Yu et al. 2022).

Every worker owns one lane of each kind (slots and caches); all share the sessions, and with them one copy of the weights.
Between two steps a worker asks the scheduler who leaves and who joins.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from triptych_serving.decoding.greedy_lane import Lane
from triptych_serving.errors import EngineError, ServingError, UnavailableError
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.runtime.process import forget_frames, give_way
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, Job, LaneKind, LanePlan
from triptych_serving.scheduling.request import Call, Row
from triptych_serving.scheduling.step_stats import StepStats

logger = logging.getLogger(__name__)

GPU_LIMITS: Mapping[str, int] = {"prefill_tokens": 4_096, "refill_rows": 64}  # of SchedulerLimits
BUSY_SHARE = 4  # while fewer slots than one in so many are taken, nobody is refused for the time that an answer takes


@dataclass(frozen=True)
class EngineOptions:
    """How an engine is built."""

    workers: int = 1  # threads that step; one a CPU is fastest. A GPU has one, whatever it says here
    slots: int = 32  # texts that one worker decodes greedily at once; it has twice as many places for beams and samples
    limits: DecodeLimits = field(default_factory=DecodeLimits)
    devices: tuple[Device, ...] = (CPU,)  # or GPUs, each with the whole model
    budgets: Budgets | None = None  # of the GPUs' memory; None: nothing is counted
    gives_way: bool = False  # its threads do, to the process's main one

    @property
    def threads(self) -> int:
        """That step."""
        return len(self.devices) if self.on_gpus else self.workers

    @property
    def on_gpus(self) -> bool:
        """Whether GPUs step."""
        return self.devices != (CPU,)


def with_gpu_limits(options: EngineOptions) -> EngineOptions:
    """Where GPUs step, their numbers for what the limits leave open.

    A run of the encoder takes a GPU as long as several steps, and hardly longer for many rows than for a few.
    """
    if not options.on_gpus:
        return options
    limits: dict[str, Any] = {name: value for name, value in GPU_LIMITS.items() if getattr(options.limits, name) is None}
    return replace(options, limits=replace(options.limits, **limits))


class Worker:
    """One thread's lanes. A lane is made when it is first needed, in that thread: what a GPU captures belongs to it.

    Args:
        make_lane: builds a lane of a kind for the worker of a number.
        number: of this one.
    """

    def __init__(self, make_lane: Callable[[LaneKind, int], Lane], number: int) -> None:
        self._make_lane = make_lane
        self._number = number
        self.lanes: dict[LaneKind, Lane] = {}
        self.steps = StepStats()
        self.ready = threading.Event()  # the lanes of the start are made, or cannot be
        self.error: BaseException | None = None  # why they cannot

    def get_ready(self, kinds: Iterable[LaneKind]) -> bool:
        """Make lanes. False if that failed; `error` says why."""
        try:
            for kind in kinds:
                self.lane(kind)
        except BaseException as error:  # whatever it is, whoever starts the engine hears of it
            self.error = error
            return False
        finally:
            self.ready.set()
        return True

    def take_error(self) -> BaseException | None:
        """`error`, which the worker then forgets."""
        error, self.error = self.error, None
        return error

    def lane(self, kind: LaneKind) -> Lane:
        """Made and warmed up if it is not there yet."""
        if kind not in self.lanes:
            lane = self._make_lane(kind, self._number)
            lane.warm_up()
            self.lanes[kind] = lane
        return self.lanes[kind]

    def jobs(self, kind: LaneKind) -> Sequence[Job]:
        """What runs in one of the lanes."""
        return self.lanes[kind].jobs if kind in self.lanes else ()

    @property
    def is_busy(self) -> bool:
        """Whether anything runs."""
        return any(lane.jobs for lane in tuple(self.lanes.values()))

    @property
    def running(self) -> list[Job]:
        """What runs in any lane."""
        return [job for lane in tuple(self.lanes.values()) for job in lane.jobs]

    def release(self) -> None:
        """Give up the lanes, and with them the model's memory: whoever still knows the engine shall not keep it."""
        self.lanes.clear()
        self._make_lane = _no_lane


def _no_lane(_kind: LaneKind, _number: int) -> Lane:
    raise UnavailableError("the model is shutting down")


class DecodeEngine:
    """Takes calls from any thread.

    Args:
        make_lane: builds a lane of a kind for the worker of a number, in its thread.
        options: workers and limits.
        clock: monotonic seconds.
        first: the kind of lane that is made at the start.
    """

    def __init__(
        self,
        make_lane: Callable[[LaneKind, int], Lane],
        options: EngineOptions,
        clock: Callable[[], float] = time.monotonic,
        first: LaneKind = LaneKind.GREEDY,
    ) -> None:
        self._clock = clock
        self._kinds: tuple[LaneKind, ...] = (first,)
        self._slots = options.slots
        self._gives_way = options.gives_way
        self._workers = [Worker(make_lane, number) for number in range(options.threads)]
        busy = max(1, options.threads * options.slots // BUSY_SHARE)
        self._make_scheduler = partial(DecodeScheduler, options.limits, self._running, busy)
        self._scheduler = self._make_scheduler()
        self._changed = threading.Condition()
        self._stopping = False  # end when there is nothing more to do
        self._aborting = False  # end now
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"triptych-engine-{index}", daemon=True)
            for index, worker in enumerate(self._workers)
        ]

    @property
    def bytes(self) -> int:
        """Memory of all caches so far, in bytes."""
        return sum(lane.bytes for worker in self._workers for lane in tuple(worker.lanes.values()))

    @property
    def counters(self) -> Counters:
        """How calls ended so far."""
        with self._changed:
            return replace(self._scheduler.counters)

    @property
    def steps(self) -> StepStats:
        """What steps took so far, and how many rows each had."""
        return StepStats.total(worker.steps for worker in self._workers)

    def start(self, kinds: Iterable[LaneKind] = ()) -> None:
        """Start the workers, and wait until each has made and warmed up its lanes, of these kinds beside the first one.

        Raises:
            Exception: what kept a worker from making a lane. The engine is closed then.
        """
        self._kinds = (*self._kinds, *kinds)
        for thread in self._threads:
            thread.start()
        for worker in self._workers:
            worker.ready.wait()
        if any(worker.error is not None for worker in self._workers):
            self.close(drain=False)
            errors = [error for worker in self._workers if (error := worker.take_error()) is not None]
            for error in errors:
                forget_frames(error)
            raise errors[0]

    def forget(self) -> None:
        """Calls so far were no real ones: they count neither in the counters nor in forecasts. None may be left."""
        with self._changed:
            self._scheduler = self._make_scheduler()

    def submit(self, call: Call[Row]) -> None:
        """Queue a call; its listener hears of the end.

        Raises:
            OverloadedError: the queue is full, or the call would wait too long.
            UnavailableError: the engine is shutting down.
            DeadlineError: the deadline has passed.
        """
        with self._changed:
            self._scheduler.submit(call, self._clock())
            self._changed.notify_all()

    def check(self, greedy: bool, rows: int, deadline: float | None = None) -> None:
        """Refuse a call of at least so many rows before the work of making them, if it is sure to be refused.

        Waits for nobody: while the engine itself is about its queue, a call passes, and is checked when it is submitted.

        Raises:
            ServingError: as `submit`.
        """
        if not self._changed.acquire(blocking=False):
            return
        try:
            self._scheduler.check(greedy, rows, deadline, self._clock())
        finally:
            self._changed.release()

    def cancel(self, call: Call[Row]) -> None:
        """Drop a call; its rows leave before the next step."""
        with self._changed:
            self._scheduler.cancel(call, self._clock())

    def load(self) -> tuple[int, int]:
        """Rows that run, rows that wait."""
        with self._changed:
            return sum(len(worker.running) for worker in self._workers), self._scheduler.waiting

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
        for worker in self._workers:
            worker.release()

    def _running(self, kind: LaneKind) -> int:
        return sum(len(worker.jobs(kind)) for worker in self._workers)

    def _work(self, worker: Worker) -> None:
        if self._gives_way:
            give_way()
        if not worker.get_ready(self._kinds):
            return
        while self._change_rows(worker):
            for lane in worker.lanes.values():
                if lane.jobs:
                    self._step(worker, lane)

    def _step(self, worker: Worker, lane: Lane) -> None:
        rows, began = len(lane.jobs), self._clock()
        try:
            ended = lane.step()
        except Exception as error:  # whatever it is, the server must live on
            self._recover(lane, error)
        else:
            worker.steps.add(self._clock() - began, rows)
            self._report(lane, ended)

    def _change_rows(self, worker: Worker) -> bool:
        """Let rows leave and join; wait while there is nothing to do. False when the worker shall end."""
        with self._changed:
            while not (plans := self._plans(worker)) and not worker.is_busy:
                if self._aborting or self._stopping:
                    break
                self._changed.wait()
            if self._aborting:
                self._abort(worker, plans)
                return False
        for kind, plan in plans.items():
            if (lane := self._lane(worker, kind, plan)) is not None:
                lane.leave(plan.leave)
                self._join(lane, plan.join)
        return bool(plans) or worker.is_busy

    def _lane(self, worker: Worker, kind: LaneKind, plan: LanePlan) -> Lane | None:
        """None if it cannot be made, of which the rows that were to join it hear."""
        try:
            return worker.lane(kind)
        except Exception as error:  # whatever it is, the server must live on
            logger.error("a lane for %s cannot be made: %s", kind.value, error, exc_info=error)
            forget_frames(error)
            cause = error if isinstance(error, ServingError) else EngineError.of(error)
            with self._changed:
                for job in plan.join:
                    self._fail(job.call, cause)
            return None

    def _plans(self, worker: Worker) -> dict[LaneKind, LanePlan]:
        """What changes in each lane, where anything does."""
        now = self._clock()
        plans = {}
        for kind in LaneKind:
            jobs = worker.jobs(kind)
            if not jobs and not self._scheduler.waits(kind):
                continue
            free = self._slots if kind not in worker.lanes else worker.lanes[kind].free
            idle = sum(not other.jobs(kind) for other in self._workers)
            if plan := self._scheduler.plan(kind, jobs, free, idle, now):
                plans[kind] = plan
        return plans

    def _abort(self, worker: Worker, plans: Mapping[LaneKind, LanePlan]) -> None:
        """Fail what this worker runs or was about to, and what waits for any."""
        joining = [job.call for plan in plans.values() for job in plan.join]
        for call in (*joining, *(job.call for job in worker.running), *self._scheduler.drain()):
            self._fail(call, UnavailableError("the model is shutting down"))
        for lane in worker.lanes.values():
            lane.leave(tuple(lane.jobs))

    def _fail(self, call: Call[Row], error: ServingError) -> None:
        self._scheduler.counters.failed += not call.over
        call.fail(error)

    def _join(self, lane: Lane, jobs: tuple[Job, ...]) -> None:
        if not jobs:
            return
        now = self._clock()
        for job in jobs:
            job.row.started = now
        try:
            lane.join(jobs)
        except Exception as error:  # whatever it is, the server must live on
            self._recover(lane, error, jobs)

    def _report(self, lane: Lane, ended: list[Job]) -> None:
        """Tell the listeners what the step brought."""
        now = self._clock()
        with self._changed:
            for job in (*ended, *lane.news):
                row = job.row
                if not row.first_token:
                    row.first_token = now
                if job.call.streams and not job.call.over:
                    job.call.listener.on_token(row)
            for job in ended:
                job.row.ended = now
                self._scheduler.served(job.row)
                job.call.row_ended()
                if job.call.over and job.call.error is None:
                    self._scheduler.finish(job.call, now)

    def _recover(self, lane: Lane, error: Exception, joining: tuple[Job, ...] = ()) -> None:
        """The runtime failed: rows that shared a batch are tried once more alone, a row that was alone has its answer."""
        jobs = list(dict.fromkeys((*lane.jobs, *joining)))
        logger.error("a batch of %d rows failed: %s", len(jobs), error, exc_info=error)
        cause = EngineError.of(error)
        lane.leave(tuple(lane.jobs))
        with self._changed:
            for job in jobs:
                if job.row.alone:
                    self._fail(job.call, cause)
            self._scheduler.retry(job for job in jobs if not job.row.alone and not job.call.over)
            self._changed.notify_all()
