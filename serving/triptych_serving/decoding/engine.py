"""The decode engine: workers that step rows of many calls together (iteration-level batching; Yu et al. 2022).

Every worker owns one lane of each kind (slots and caches); all share the sessions, and with them one copy of the weights.
Between two steps a worker asks the scheduler which rows leave and which join.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from triptych_serving.decoding.lane import Lane
from triptych_serving.errors import EngineError, ServingError, UnavailableError
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budgets
from triptych_serving.runtime.process import forget_frames
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, LaneKind, LanePlan, suspects
from triptych_serving.scheduling.engine import SHUTTING_DOWN, Engine, Worker
from triptych_serving.scheduling.request import Row

logger = logging.getLogger(__name__)

NARROW_SLOTS = 8  # hypotheses of a row that shares a thread with others, where wide rows have threads of their own
WIDE_NICENESS = 19  # of these threads, the largest: they get an eighth of a CPU that other engine threads use, too
BUSY_SHARE = 4  # below 1 / BUSY_SHARE of the slots in use, no call is refused for its service time

MakeLane = Callable[[LaneKind, int], Lane]


@dataclass(frozen=True)
class EngineOptions:
    """Options of a decode engine."""

    workers: int = 1  # threads on the CPU, where one per core is fastest; ignored on GPUs, which have one each
    slots: int = 32  # texts that one worker decodes greedily at once; it has twice as many slots for beams and samples
    limits: DecodeLimits = field(default_factory=DecodeLimits)
    devices: tuple[Device, ...] = (CPU,)  # or GPUs, each with the whole model
    budgets: Budgets | None = None  # of the GPUs' memory; None: not limited
    gives_way: bool = False  # the threads yield to the process's main thread

    @property
    def worker_count(self) -> int:
        """Number of workers, a thread each: one for each GPU, or `workers` on the CPU."""
        return len(self.devices) if self.on_gpus else self.workers

    @property
    def on_gpus(self) -> bool:
        """True where GPUs run the graphs."""
        return self.devices != (CPU,)


class DecodeWorker(Worker):
    """One thread's lanes. A lane is made when first needed, in that thread: CUDA graphs belong to the thread that captures.

    Args:
        make_lane: makes a lane of a kind for the worker of a number.
        kinds: of the rows that it takes.
    """

    def __init__(self, make_lane: MakeLane, number: int, kinds: Iterable[LaneKind] = LaneKind) -> None:
        super().__init__(number)
        self.kinds = tuple(kinds)
        self._make_lane = make_lane
        self.lanes: dict[LaneKind, Lane] = {}
        self._used: dict[LaneKind, float] = {}  # virtual seconds of each lane that has rows
        self._now = 0.0  # virtual seconds of the last lane that was chosen, before its step
        self.is_settled = False  # no row waited, left or joined before the last step
        self.ready = threading.Event()  # the first lanes are made, or cannot be
        self.error: BaseException | None = None  # why they cannot

    def get_ready(self, kinds: Iterable[LaneKind]) -> bool:
        """Make lanes. False if that failed; `error` says why."""
        try:
            for kind in kinds:
                if kind in self.kinds:
                    self.lane(kind)
        except BaseException as error:  # whatever it is, `DecodeEngine.start` raises it
            self.error = error
            return False
        finally:
            self.ready.set()
        return True

    def lane(self, kind: LaneKind) -> Lane:
        """Return a lane; make it and warm it up the first time."""
        if kind not in self.lanes:
            lane = self._make_lane(kind, self.number)
            lane.warm_up()
            self.lanes[kind] = lane
        return self.lanes[kind]

    def rows(self, kind: LaneKind) -> Sequence[Row]:
        """Rows that run in one of the lanes."""
        return self.lanes[kind].rows if kind in self.lanes else ()

    def next_lane(self) -> LaneKind | None:
        """Return the lane to step next, if any has rows. They share the thread's time equally (start-time fair queueing)."""
        used = self._used = {kind: self._used.get(kind, self._now) for kind, lane in self.lanes.items() if lane.rows}
        chosen = min(used, key=used.__getitem__, default=None)
        if chosen is not None:
            self._now = used[chosen]
        return chosen

    def use(self, kind: LaneKind, seconds: float) -> None:
        """Count time that the chosen lane took."""
        self._used[kind] += seconds

    @property
    def is_busy(self) -> bool:
        """True while any row runs."""
        return any(lane.rows for lane in tuple(self.lanes.values()))

    def release(self) -> None:
        """Drop the lanes and their memory, also what an error's frames hold."""
        self.error = None
        self.lanes.clear()
        self._make_lane = _no_lane


def _no_lane(_kind: LaneKind, _number: int) -> Lane:
    raise UnavailableError(SHUTTING_DOWN)


class DecodeEngine(Engine[Row]):
    """Decodes rows, token by token.

    Args:
        make_lane: makes a lane of a kind for the worker of a number, in its thread.
        clock: monotonic seconds.
        first: the kind of lane that is made at the start.
        wide_workers: number of more threads, of a low priority, for rows with many hypotheses: their steps take many times as
            long as those of others, who would wait for them. 0: such rows share the lanes of others.
    """

    _queue: DecodeScheduler
    _workers: tuple[DecodeWorker, ...]

    def __init__(
        self,
        make_lane: MakeLane,
        options: EngineOptions,
        clock: Callable[[], float] = time.monotonic,
        first: LaneKind = LaneKind.GREEDY,
        wide_workers: int = 0,
    ) -> None:
        self._kinds: tuple[LaneKind, ...] = (first,)
        self._slots = options.slots
        usual, count = [kind for kind in LaneKind if kind is not LaneKind.WIDE], options.worker_count
        kinds = [usual] * count + [[LaneKind.WIDE]] * wide_workers
        workers = [DecodeWorker(make_lane, number, own) for number, own in enumerate(kinds)]
        for worker in workers[count:]:
            worker.niceness = WIDE_NICENESS
        narrow = NARROW_SLOTS if wide_workers else sys.maxsize
        busy = max(1, count * options.slots // BUSY_SHARE)
        make_queue = partial(DecodeScheduler, options.limits, self._count_rows, busy, options.slots, narrow, options.on_gpus)
        super().__init__(make_queue, workers, "triptych-engine", options.gives_way, clock)
        # Of their own: a thread of a low priority that is woken for nothing keeps Python's lock from others for a long time.
        self._wide_changed = threading.Condition(self._lock)

    @property
    def bytes(self) -> int:
        """Bytes of all caches so far."""
        return sum(lane.bytes for worker in self._workers for lane in tuple(worker.lanes.values()))

    def start(self, kinds: Iterable[LaneKind] = ()) -> None:
        """Start the workers; wait until each has made and warmed up the first lane, and those of these kinds.

        Raises:
            Exception: what kept a worker from making a lane. The engine is closed then.
        """
        self._kinds = (*self._kinds, *kinds)
        for thread in self._threads:
            thread.start()
        for worker in self._workers:
            worker.ready.wait()
        errors = [worker.error for worker in self._workers if worker.error is not None]
        if errors:
            self.close(drain=False)
            for error in errors:
                forget_frames(error)
            raise errors[0]

    def _count_rows(self, kind: LaneKind) -> int:
        return sum(len(worker.rows(kind)) for worker in self._workers)

    def _wake(self) -> None:
        self._changed.notify(self._queue.waiting)
        if self._queue.waits(LaneKind.WIDE):
            self._wide_changed.notify_all()

    def _wake_all(self) -> None:
        super()._wake_all()
        self._wide_changed.notify_all()

    def _release(self) -> None:
        for worker in self._workers:
            worker.release()

    def _run(self, worker: DecodeWorker) -> None:
        if not worker.get_ready(self._kinds):
            return
        while self._change_rows(worker):
            if (kind := worker.next_lane()) is not None:
                self._step(worker, kind, worker.lanes[kind])

    def _rebuild(self, worker: DecodeWorker) -> None:
        kinds = {*self._kinds, *worker.lanes}
        worker.lanes.clear()
        for kind in kinds:
            worker.lane(kind)

    def _step(self, worker: DecodeWorker, kind: LaneKind, lane: Lane) -> None:
        rows, began = len(lane.rows), self._clock()
        try:
            ended = lane.step()
        except Exception as error:  # the server must survive any failure of a step
            self._recover(worker, kind, error)
        else:
            seconds = self._clock() - began
            worker.use(kind, seconds)
            worker.steps.add(seconds, rows)
            self._report(worker, lane, ended)

    def _change_rows(self, worker: DecodeWorker) -> bool:
        """Let rows leave and join; wait while there is nothing to do. False when the worker must end."""
        if self._goes_on(worker):
            return True
        with self._changed:
            while not (plans := self._plans(worker)) and not worker.is_busy:
                if self._aborting or self._stopping:
                    break
                (self._wide_changed if LaneKind.WIDE in worker.kinds else self._changed).wait()
            if self._aborting:
                calls = [*(row.call for row in worker.held), *self._queue.drain()]
                self._fail(calls, UnavailableError(SHUTTING_DOWN))
                worker.held.clear()
                return False
        for kind, plan in plans.items():
            if (lane := self._lane(worker, kind, plan)) is not None:
                lane.leave(plan.leave)
                worker.held.difference_update(plan.leave)
                self._join(worker, kind, plan.join)
        return bool(plans) or worker.is_busy

    def _goes_on(self, worker: DecodeWorker) -> bool:
        """Tell without the lock, as is usual between two steps, that rows run which all stay, and none can join."""
        if not worker.is_settled or self._aborting or not self._queue.is_empty:
            return False
        now, running = self._clock(), [rows for lane in worker.lanes.values() if (rows := lane.rows)]
        return bool(running) and not any(suspects(rows, now) for rows in running)

    def _lane(self, worker: DecodeWorker, kind: LaneKind, plan: LanePlan) -> Lane | None:
        """Return a lane; None if it cannot be made, which fails the rows that were to join it."""
        try:
            return worker.lane(kind)
        except Exception as error:  # the server must survive, with the lanes that it has
            logger.error("lane failed to load: %s: %s", kind.value, error, exc_info=error)
            forget_frames(error)
            with self._changed:
                self._fail([row.call for row in plan.join], error if isinstance(error, ServingError) else EngineError.of(error))
                worker.held.difference_update(plan.join)
            return None

    def _plans(self, worker: DecodeWorker) -> dict[LaneKind, LanePlan]:
        """Return the changes of each lane, where there are any; the worker holds the rows that join. Holds the lock."""
        try:
            plans = self._choose(worker)
        except BaseException as error:
            self._replace_queue(error)
            raise
        for plan in plans.values():
            worker.held.update(plan.join)
        worker.is_settled = not plans and self._queue.is_empty
        return plans

    def _choose(self, worker: DecodeWorker) -> dict[LaneKind, LanePlan]:
        now = self._clock()
        plans = {}
        for kind in worker.kinds:
            rows = worker.rows(kind)
            if not rows and not self._queue.waits(kind):
                continue
            free = self._slots if kind not in worker.lanes else worker.lanes[kind].free
            idle = sum(not other.rows(kind) for other in self._workers if kind in other.kinds)
            if plan := self._queue.plan(kind, rows, free, idle, now):
                plans[kind] = plan
        return plans

    def _join(self, worker: DecodeWorker, kind: LaneKind, rows: tuple[Row, ...]) -> None:
        if not rows:
            return
        now = self._clock()
        for row in rows:
            row.started = now
        try:
            worker.lanes[kind].join(rows)
        except Exception as error:  # the server must survive any failure of the encoder
            self._recover(worker, kind, error)

    def _report(self, worker: DecodeWorker, lane: Lane, ended: list[Row]) -> None:
        """Call the listeners of rows with new tokens or results."""
        updated = lane.updated_rows
        if not ended and not any(row.call.streams or not row.first_token for row in updated):
            return
        now = self._clock()
        with self._changed:
            for row in (*ended, *updated):
                if not row.first_token:
                    row.first_token = now
                if row.call.streams and not row.call.over:
                    row.call.notify_token(row)
            for row in ended:
                row.ended = now
                self._queue.served(row)
                worker.held.discard(row)
                if (call := row.call).count_down():
                    call.notify_end()
                    self._queue.finish(call, now)

    def _recover(self, worker: DecodeWorker, kind: LaneKind, error: Exception) -> None:
        """Empty a lane whose graph failed, and retry its rows: those that the worker holds, whatever the lane says."""
        worker.lanes[kind].reset()
        rows = sorted((row for row in worker.held if self._queue.lane_of(row) is kind), key=lambda row: row.order)
        with self._changed:
            self._retry(worker, rows, error)
