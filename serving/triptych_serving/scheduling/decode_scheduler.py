"""Which rows run next: admission, fairness between calls, cancellation and deadlines. No runtime, no threads, no clock.

Callers hold a lock around every method.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from triptych_serving.errors import DeadlineError
from triptych_serving.scheduling.admission import SWEEP_SECONDS, Admission, Counters, Demand, QueueLimits
from triptych_serving.scheduling.fair_queue import FairQueue
from triptych_serving.scheduling.request import Call, Row
from triptych_serving.scheduling.wait_estimator import Forecast, WaitEstimator


class LaneKind(Enum):
    """Which lane a row needs."""

    GREEDY = "greedy"
    SEARCH = "search"
    SHORT_GREEDY = "greedy, within a shortlist"
    SHORT_SEARCH = "search, within a shortlist"

    __hash__ = object.__hash__  # each is there once; Enum's own is written in Python, and asked for at every step

    @classmethod
    def of(cls, row: Row) -> "LaneKind":
        if row.shortlist is None:
            return cls.GREEDY if row.search.greedy else cls.SEARCH
        return cls.SHORT_GREEDY if row.search.greedy else cls.SHORT_SEARCH


PREFILL_TOKENS, REFILL_ROWS = 512, 8  # where the limits leave them open: what suits a CPU


@dataclass(frozen=True)
class DecodeLimits(QueueLimits):
    """Bounds of the queue and of one admission. None: what suits the device."""

    prefill_tokens: int | None = None  # padded source tokens encoded between two steps, while other rows wait for the next one
    gather_seconds: float = 0.004  # beside a busy lane's rows, a few that wait are given so long to become `refill_rows`
    refill_rows: int | None = None  # with a long queue, so many (a quarter of the slots at most) join at once: encoding is dear


@dataclass(frozen=True)
class Job:
    """A row and the call that it is for."""

    row: Row
    call: Call[Row]


@dataclass(frozen=True)
class LanePlan:
    """What a lane does before its next step."""

    leave: tuple[Job, ...] = ()
    join: tuple[Job, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.leave or self.join)


class DecodeScheduler:
    """The queue of one engine, whose workers have a lane of each kind.

    Args:
        limits: of the queue and of one admission.
        running: how many rows of a kind do, for all workers.
        busy: with so many of them, rows take notably longer than alone.
    """

    def __init__(self, limits: DecodeLimits, running: Callable[[LaneKind], int] = lambda _: 0, busy: int = 1) -> None:
        self._limits = limits
        self._prefill_tokens = PREFILL_TOKENS if limits.prefill_tokens is None else limits.prefill_tokens
        self._refill_rows = REFILL_ROWS if limits.refill_rows is None else limits.refill_rows
        self._running = running
        self._busy = busy
        self._admission = Admission(limits)
        self._turns = {kind: FairQueue() for kind in LaneKind}
        self._paces = {kind: WaitEstimator() for kind in LaneKind}
        self._retries: dict[LaneKind, deque[Job]] = {kind: deque() for kind in LaneKind}
        self._next_sweep = 0.0

    @property
    def counters(self) -> Counters:
        """How calls ended."""
        return self._admission.counters

    @property
    def waiting(self) -> int:
        """Rows in the queue, those to be tried again included."""
        return self._admission.rows + sum(map(len, self._retries.values()))

    def submit(self, call: Call[Row], now: float) -> None:
        """Queue all rows of a call, or none.

        Raises:
            UnavailableError: the engine is shutting down.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full, or the call would wait too long.
            DeadlineError: the call's deadline has passed already.
        """
        by_kind = _by_kind(call.rows)
        self._admission.admit(call, now, lambda: self._forecast(call, by_kind, now))
        for kind, rows in by_kind.items():
            self._turns[kind].add(call, rows)

    def check(self, greedy: bool, rows: int, deadline: float | None, now: float) -> None:
        """Refuse a call of at least so many rows before the work of making them, if it is sure to be refused.

        Args:
            greedy: its search.
            rows: at least.
            deadline: clock seconds.
            now: clock seconds.

        Raises:
            ServingError: as `submit`.
        """
        kinds = (LaneKind.GREEDY, LaneKind.SHORT_GREEDY) if greedy else (LaneKind.SEARCH, LaneKind.SHORT_SEARCH)
        self._admission.check(Demand(rows, 0, deadline), now, lambda: self._soonest(kinds, rows, deadline, now))

    def cancel(self, call: Call[Row], now: float) -> None:
        """Its caller went away."""
        self._admission.cancel(call, now)

    def finish(self, call: Call[Row], now: float) -> None:
        """All of its rows have their results."""
        self._admission.finish(call, now)

    def served(self, row: Row) -> None:
        """A row has its result."""
        kind = LaneKind.of(row)
        self._paces[kind].serve(row.ended - row.started, self._running(kind))

    def retry(self, jobs: Iterable[Job]) -> None:
        """Queue rows whose batch failed, each to run by itself, before everything else."""
        for job in jobs:
            job.row.alone = True
            job.row.tokens.clear()
            self._retries[LaneKind.of(job.row)].append(job)

    def close(self) -> None:
        """Refuse what comes from now on; what waits is still served."""
        self._admission.close()

    def drain(self) -> list[Call[Row]]:
        """Empty the queue; returns the calls that were in it."""
        calls = [call for turns in self._turns.values() for call in turns.clear()]
        for retries in self._retries.values():
            calls += [job.call for job in retries]
            retries.clear()
        self._admission.reset()
        return calls

    def waits(self, kind: LaneKind) -> bool:
        """Whether a row of this kind does."""
        return bool(self._turns[kind].rows or self._retries[kind])

    def plan(self, kind: LaneKind, running: Sequence[Job], free: int, idle_workers: int, now: float) -> LanePlan:
        """Who leaves and who joins a worker's lane.

        Args:
            kind: of the lane.
            running: the lane's rows.
            free: its empty slots.
            idle_workers: workers without rows of this kind, this one included if it has none: a short queue is shared.
            now: clock seconds.
        """
        self._sweep(now)
        leave = tuple(job for job in _suspects(running, now) if self._admission.is_dead(job.call, now))
        self.counters.freed += len(leave)
        for job in leave:
            if isinstance(job.call.error, DeadlineError):  # it would have taken even longer
                self._paces[kind].serve(now - job.row.started, self._running(kind))
        if any(job.row.alone for job in running[:1]):
            return LanePlan(leave)
        staying = len(running) - len(leave)
        free += sum(job.row.search.slots for job in leave)
        join = tuple(self._admit(kind, staying, free, idle_workers, now))
        self._pace(kind, join, staying, now)
        return LanePlan(leave, join)

    def _pace(self, kind: LaneKind, joined: tuple[Job, ...], running: int, now: float) -> None:
        turns, pace = self._turns[kind], self._paces[kind]
        if joined:
            pace.take(sum(job.row.size for job in joined), now, left=turns.rows > 0, fills=not running)
        elif not turns.rows:
            pace.pause()

    def _admit(self, kind: LaneKind, running: int, free: int, idle_workers: int, now: float) -> list[Job]:
        retries, turns = self._retries[kind], self._turns[kind]
        while retries and self._admission.is_dead(retries[0].call, now):
            retries.popleft()
        if retries:
            # Running rows finish first, then the retried row has the lane to itself.
            return [retries.popleft()] if running == 0 else []
        first = self._first(turns, now)
        if first is None:
            return []
        width = first.search.slots
        refill = min(self._refill_rows, turns.rows, max(1, (running + free // width) // 4))
        if running and free < refill * width:
            return []
        if running >= self._refill_rows and self._may_gather(turns, now):
            return []
        share = turns.rows if running else math.ceil(turns.rows / max(1, idle_workers))
        budget = self._prefill_tokens if running else math.inf
        return self._take(turns, share, free, budget, now)

    def _take(self, turns: FairQueue, rows: int, slots: int, tokens: float, now: float) -> list[Job]:
        """Up to `rows` rows: at least one if it finds slots, then as many as fit into `slots` and `tokens`, padded."""
        taken: list[Job] = []
        longest = 0
        while len(taken) < rows and (first := self._first(turns, now)) is not None:
            longest = max(longest, len(first.source))
            slots -= first.search.slots
            if slots < 0 or (taken and longest * (len(taken) + 1) > tokens):
                break
            call, row = turns.take()
            self._admission.release(call, row)
            taken.append(Job(row, call))
        return taken

    def _may_gather(self, turns: FairQueue, now: float) -> bool:
        """Few rows wait, and not for long."""
        first = turns.peek()
        few = turns.rows < self._refill_rows
        return few and first is not None and now - first[0].arrived < self._limits.gather_seconds

    def _first(self, turns: FairQueue, now: float) -> Row | None:
        """The row whose turn it is, once those that nobody waits for are gone."""
        while (first := turns.peek()) is not None and self._admission.is_dead(first[0], now):
            self._release_dead(turns)
        return first[1] if first else None

    def _sweep(self, now: float) -> None:
        """Now and then, drop what nobody waits for any more, so that it does not fill the queue."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        for turns in self._turns.values():
            for call in turns.calls():
                self._admission.is_dead(call, now)
            self._release_dead(turns)
        for kind, retries in self._retries.items():
            self._retries[kind] = deque(job for job in retries if not self._admission.is_dead(job.call, now))

    def _release_dead(self, turns: FairQueue) -> None:
        for call, rows in turns.remove_over():
            self._admission.release(call, *rows)
            self.counters.freed += len(rows)

    def _forecast(self, call: Call[Row], by_kind: Mapping[LaneKind, Sequence[Row]], now: float) -> Forecast | None:
        """For a call that would join now: the lane that takes longest decides."""
        forecasts = []
        for kind, rows in by_kind.items():
            own = sum(row.size for row in rows[:-1])
            forecasts.append(self._forecast_for(kind, len(rows), own, call.deadline, now))
        return max(filter(None, forecasts), key=lambda forecast: forecast.total, default=None)

    def _soonest(self, kinds: Sequence[LaneKind], rows: int, deadline: float | None, now: float) -> Forecast | None:
        """The same for rows of any of these kinds, as far as they are in use."""
        used = [kind for kind in kinds if self._paces[kind].is_known]
        forecasts = [self._forecast_for(kind, rows, 0, deadline, now) for kind in used]
        known = [forecast for forecast in forecasts if forecast]
        return min(known, key=lambda forecast: forecast.total) if known and len(known) == len(used) else None

    def _forecast_for(self, kind: LaneKind, rows: int, own: int, deadline: float | None, now: float) -> Forecast | None:
        """None on an engine that is not busy, too. `own` tokens are those of all rows but the last."""
        turns, running = self._turns[kind], self._running(kind)
        if not turns.rows and running < self._busy:
            return None
        return self._paces[kind].forecast(turns.ahead(rows, deadline, now) + own, running)


def _suspects(running: Sequence[Job], now: float) -> list[Job]:
    """Those whose call may be dead; between every two steps, so without a call for each row."""
    return [
        job
        for job in running
        if job.call.error is not None or ((deadline := job.call.deadline) is not None and deadline <= now)
    ]


def _by_kind(rows: Iterable[Row]) -> dict[LaneKind, list[Row]]:
    found: dict[LaneKind, list[Row]] = {}
    for row in rows:
        found.setdefault(LaneKind.of(row), []).append(row)
    return found
