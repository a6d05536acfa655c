"""Iteration-level batching: which rows leave and join a lane between two decoding steps. No runtime, no threads, no clock."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from triptych_serving.errors import DeadlineError
from triptych_serving.scheduling.admission import CallQueue, QueueLimits
from triptych_serving.scheduling.fair_queue import FairQueue
from triptych_serving.scheduling.request import Call, Row
from triptych_serving.scheduling.wait_estimator import ExpectedCall, Forecast


class LaneKind(Enum):
    """The graph that a row needs."""

    GREEDY = "greedy"
    SEARCH = "search"
    SHORT_GREEDY = "greedy, within a shortlist"
    SHORT_SEARCH = "search, within a shortlist"
    WIDE = "search, of rows with many hypotheses"  # the same graph as SEARCH, in slots of its own

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is Python code, and is needed at every step

    @classmethod
    def of(cls, row: Row) -> "LaneKind":
        """Return the kind of a row by its graph."""
        if row.shortlist is None:
            return cls.GREEDY if row.search.greedy else cls.SEARCH
        return cls.SHORT_GREEDY if row.search.greedy else cls.SHORT_SEARCH


PREFILL_TOKENS, REFILL_ROWS = 512, 8  # defaults for a CPU
# Those for GPUs: an encoder run takes a GPU as long as several steps, and hardly longer for many rows than for a few.
GPU_PREFILL_TOKENS, GPU_REFILL_ROWS = 4_096, 64


@dataclass(frozen=True)
class DecodeLimits(QueueLimits):
    """Bounds of the queue, and of the rows that join together. None: chosen for the device."""

    prefill_tokens: int | None = None  # padded source tokens encoded between two steps while other rows are decoding
    gather_seconds: float = 0.004  # beside a busy lane's rows, a few waiting rows get this long to become `refill_rows`
    refill_rows: int | None = None  # with a long queue this many join together, or a quarter of the slots: encoding is costly


@dataclass(frozen=True)
class LanePlan:
    """Changes of a lane before its next step."""

    leave: tuple[Row, ...] = ()
    join: tuple[Row, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.leave or self.join)


class DecodeScheduler(CallQueue[Row]):
    """The queue of a decode engine, whose workers have a lane of each kind.

    Args:
        limits: of the queue and of the rows that join together.
        running: returns the number of running rows of a kind, in all workers.
        busy: number of running rows from which rows take notably longer than alone.
        turn: slots that rows of a call share a turn for, as of FairQueue.
        narrow: hypotheses that a row of the search lane may have; rows with more are wide.
        on_gpus: GPUs run the graphs.
    """

    def __init__(
        self,
        limits: DecodeLimits,
        running: Callable[[LaneKind], int] = lambda _: 0,
        busy: int = 1,
        turn: int = 1,
        narrow: int = sys.maxsize,
        on_gpus: bool = False,
    ) -> None:
        super().__init__(limits, LaneKind, lambda row: row.search.slots, turn=turn)
        self._gather_seconds = limits.gather_seconds
        tokens, rows = (GPU_PREFILL_TOKENS, GPU_REFILL_ROWS) if on_gpus else (PREFILL_TOKENS, REFILL_ROWS)
        self._prefill_tokens = tokens if limits.prefill_tokens is None else limits.prefill_tokens
        self._refill_rows = rows if limits.refill_rows is None else limits.refill_rows
        self._running = running
        self._busy = busy
        self._narrow = narrow

    def lane_of(self, row: Row) -> LaneKind:
        kind = LaneKind.of(row)
        return LaneKind.WIDE if kind is LaneKind.SEARCH and row.search.slots > self._narrow else kind

    def _in_order(self, call: Call[Row]) -> Sequence[Row]:
        """Put long rows first where all results are sent together: similar ones are encoded together, and the last end soon."""
        return call.rows if call.streams else sorted(call.rows, key=lambda row: -row.size)

    def served(self, row: Row) -> None:
        """Learn from a row that has its result."""
        self._estimators[self.lane_of(row)].record_served(row.ended - row.started)

    def waits(self, kind: LaneKind) -> bool:
        """Tell whether a row of this kind waits."""
        return bool(self._queues[kind].rows or self._retries[kind])

    def plan(self, kind: LaneKind, running: Sequence[Row], free: int, idle_workers: int, now: float) -> LanePlan:
        """Choose the rows that leave and join a worker's lane.

        Args:
            free: its empty slots.
            idle_workers: workers without rows of this kind, this one included if it has none; they share a short queue.
            now: clock seconds.
        """
        self._sweep(now)
        leave = tuple(row for row in suspects(running, now) if self.expire(row.call, now))
        self.counters.freed += len(leave)
        for row in leave:
            if isinstance(row.call.error, DeadlineError):  # it would have taken even longer
                self._estimators[kind].record_served(now - row.started)
        if any(row.alone for row in running[:1]):
            return LanePlan(leave)
        staying = len(running) - len(leave)
        free += sum(row.search.slots for row in leave)
        join = tuple(self._choose(kind, staying, free, idle_workers, now))
        queue, estimator = self._queues[kind], self._estimators[kind]
        if join:
            estimator.record_taken(sum(row.size for row in join), now, left=queue.rows > 0, fills=not staying)
        elif not queue.rows:
            estimator.record_empty()
        return LanePlan(leave, join)

    def _choose(self, kind: LaneKind, running: int, free: int, idle_workers: int, now: float) -> list[Row]:
        queue = self._queues[kind]
        if self._first_retry(kind, now) is not None:
            # Running rows finish first, then the retried row has the lane to itself.
            return [self._retries[kind].popleft()] if running == 0 else []
        first = self._first(queue, now)
        if first is None:
            return []
        width = first.search.slots
        refill = min(self._refill_rows, queue.rows, max(1, (running + free // width) // 4))
        if running and free < refill * width:
            return []
        few = queue.rows < self._refill_rows <= running
        if few and now - first.call.arrived < self._gather_seconds:
            return []
        share = queue.rows if running else math.ceil(queue.rows / max(1, idle_workers))
        return self._take_rows(queue, share, free, self._prefill_tokens if running else math.inf, now)

    def _take_rows(self, queue: FairQueue[Row], rows: int, slots: int, tokens: float, now: float) -> list[Row]:
        """Take up to `rows` rows: one if it finds slots, then as many as fit into `slots` and `tokens`, padded."""
        taken: list[Row] = []
        longest = 0
        while len(taken) < rows and (row := self._first(queue, now)) is not None:
            longest = max(longest, row.size)
            slots -= row.search.slots
            if slots < 0 or (taken and longest * (len(taken) + 1) > tokens):
                break
            queue.advance(row)
            self._take(queue, row)
            taken.append(row)
        return taken

    def _forecast(self, call: Call[Row], now: float) -> Forecast | None:
        """The lane that takes longest decides."""
        lanes: dict[LaneKind, list[Row]] = {}
        for row in call.rows:
            lanes.setdefault(self.lane_of(row), []).append(row)
        forecasts = [self._forecast_rows(kind, own, call.deadline, now) for kind, own in lanes.items()]
        return max(filter(None, forecasts), key=lambda forecast: forecast.total, default=None)

    def _forecast_expected(self, expected: ExpectedCall, deadline: float | None, now: float) -> Forecast | None:
        """Any of the lanes that are in use may be meant: the quickest decides. Its rows count like those that wait there."""
        greedy = (LaneKind.GREEDY, LaneKind.SHORT_GREEDY)
        kinds = greedy if expected.greedy else tuple(kind for kind in LaneKind if kind not in greedy)
        used = [kind for kind in kinds if self._estimators[kind].is_known]
        forecasts = []
        for kind in used:
            queue = self._queues[kind]
            own = (expected.rows - 1) * queue.tokens / queue.rows if queue.rows else 0
            forecasts.append(self._forecast_for(kind, (expected.rows, 1), own, deadline, now))
        known = [forecast for forecast in forecasts if forecast]
        return min(known, key=lambda forecast: forecast.total) if known and len(known) == len(used) else None

    def _forecast_rows(self, kind: LaneKind, rows: Sequence[Row], deadline: float | None, now: float) -> Forecast | None:
        costs, tokens = sum(row.search.slots for row in rows), sum(row.size for row in rows[:-1])
        return self._forecast_for(kind, (costs, rows[-1].search.slots), tokens, deadline, now)

    def _forecast_for(
        self, kind: LaneKind, costs: tuple[int, int], own: float, deadline: float | None, now: float
    ) -> Forecast | None:
        """Forecast for one lane, None if the engine is not busy.

        Args:
            costs: of all rows and of the last one.
            own: tokens of all rows but the last.
            deadline: clock seconds.
            now: clock seconds.
        """
        queue = self._queues[kind]
        if not queue.rows:
            return self._estimators[kind].forecast(own) if self._running(kind) >= self._busy else None
        ahead = queue.ahead(*costs, deadline, now) * queue.tokens / queue.cost
        return self._estimators[kind].forecast(ahead + own)


def suspects(running: Sequence[Row], now: float) -> list[Row]:
    """Return rows whose call may be dead; no function call per row, because this is between every two steps."""
    return [
        row
        for row in running
        if (call := row.call).error is not None or ((deadline := call.deadline) is not None and deadline <= now)
    ]
