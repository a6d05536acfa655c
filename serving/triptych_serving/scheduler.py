"""Which rows run next: admission, fairness between calls, cancellation and deadlines. No runtime, no threads, no clock.

Callers hold a lock around every method.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from triptych_serving.admission import SWEEP_SECONDS, Admission, QueueLimits, is_dead
from triptych_serving.row import Call, Row
from triptych_serving.turns import Turns


class Kind(Enum):
    """Which lane a row needs."""

    GREEDY = "greedy"
    SEARCH = "search"
    SHORT_GREEDY = "greedy, within a shortlist"
    SHORT_SEARCH = "search, within a shortlist"

    @classmethod
    def of(cls, row: Row) -> "Kind":
        if row.shortlist is None:
            return cls.GREEDY if row.search.greedy else cls.SEARCH
        return cls.SHORT_GREEDY if row.search.greedy else cls.SHORT_SEARCH


@dataclass(frozen=True)
class SchedulerLimits(QueueLimits):
    """Bounds of the queue and of one admission."""

    prefill_tokens: int = 512  # padded source tokens encoded between two steps, while other rows wait for the next one
    gather_seconds: float = 0.004  # beside a busy lane's rows, a few that wait are given so long to become `refill_rows`
    refill_rows: int = 8  # with a long queue, so many rows (a quarter of the slots at most) join at once: encoding one is dear


@dataclass(frozen=True)
class Job:
    """A row and the call that it is for."""

    row: Row
    call: Call[Row]


@dataclass(frozen=True)
class Plan:
    """What a lane does before its next step."""

    leave: tuple[Job, ...] = ()
    join: tuple[Job, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.leave or self.join)


@dataclass
class Counters:
    """How calls ended and what was dropped, since the engine started."""

    finished: int = 0  # calls
    cancelled: int = 0  # calls
    expired: int = 0  # calls whose deadline passed
    failed: int = 0  # calls
    freed: int = 0  # rows that left before they were done


class Scheduler:
    """The queue of one engine, whose workers have a lane of each kind."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.counters = Counters()
        self._limits = limits
        self._admission = Admission(limits)
        self._turns = {kind: Turns() for kind in Kind}
        self._retries: dict[Kind, deque[Job]] = {kind: deque() for kind in Kind}
        self._next_sweep = 0.0

    @property
    def waiting(self) -> int:
        """Rows in the queue, those to be tried again included."""
        return self._admission.rows + sum(map(len, self._retries.values()))

    def submit(self, call: Call[Row], now: float) -> None:
        """Queue all rows of a call, or none.

        Raises:
            UnavailableError: the engine is shutting down.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full.
            DeadlineError: the call's deadline has passed already.
        """
        self._admission.admit(call, now)
        for kind, rows in _by_kind(call.rows).items():
            self._turns[kind].add(call, rows)

    def retry(self, jobs: Iterable[Job]) -> None:
        """Queue rows whose batch failed, each to run by itself, before everything else."""
        for job in jobs:
            job.row.alone = True
            job.row.tokens.clear()
            self._retries[Kind.of(job.row)].append(job)

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

    def waits(self, kind: Kind) -> bool:
        """Whether a row of this kind does."""
        return bool(self._turns[kind].rows or self._retries[kind])

    def plan(self, kind: Kind, running: Sequence[Job], free: int, idle_workers: int, now: float) -> Plan:
        """Who leaves and who joins a worker's lane.

        Args:
            kind: of the lane.
            running: the lane's rows.
            free: its empty slots.
            idle_workers: workers without rows of this kind, this one included if it has none: a short queue is shared.
            now: clock seconds.
        """
        self._sweep(now)
        leave = tuple(job for job in running if self._is_dead(job.call, now))
        self.counters.freed += len(leave)
        if any(job.row.alone for job in running[:1]):
            return Plan(leave)
        staying = len(running) - len(leave)
        free += sum(job.row.search.slots for job in leave)
        return Plan(leave, tuple(self._admit(kind, staying, free, idle_workers, now)))

    def _admit(self, kind: Kind, running: int, free: int, idle_workers: int, now: float) -> list[Job]:
        retries, turns = self._retries[kind], self._turns[kind]
        while retries and self._is_dead(retries[0].call, now):
            retries.popleft()
        if retries:
            # Running rows finish first, then the retried row has the lane to itself.
            return [retries.popleft()] if running == 0 else []
        first = self._first(turns, now)
        if first is None:
            return []
        width = first.search.slots
        refill = min(self._limits.refill_rows, turns.rows, max(1, (running + free // width) // 4))
        if running and free < refill * width:
            return []
        if running >= self._limits.refill_rows and self._may_gather(turns, now):
            return []
        share = turns.rows if running else math.ceil(turns.rows / max(1, idle_workers))
        budget = self._limits.prefill_tokens if running else math.inf
        return self._take(turns, share, free, budget, now)

    def _take(self, turns: Turns, rows: int, slots: int, tokens: float, now: float) -> list[Job]:
        """Up to `rows` rows: at least one if it finds slots, then as many as fit into `slots` and `tokens`, padded."""
        taken: list[Job] = []
        longest = 0
        while len(taken) < rows and (first := self._first(turns, now)) is not None:
            longest = max(longest, len(first.source))
            slots -= first.search.slots
            if slots < 0 or (taken and longest * (len(taken) + 1) > tokens):
                break
            call, row = turns.take()
            self._admission.release(row)
            taken.append(Job(row, call))
        return taken

    def _may_gather(self, turns: Turns, now: float) -> bool:
        """Few rows wait, and not for long."""
        first = turns.peek()
        few = turns.rows < self._limits.refill_rows
        return few and first is not None and now - first[0].arrived < self._limits.gather_seconds

    def _first(self, turns: Turns, now: float) -> Row | None:
        """The row whose turn it is, once those that nobody waits for are gone."""
        while (first := turns.peek()) is not None and self._is_dead(first[0], now):
            self._release_dead(turns)
        return first[1] if first else None

    def _sweep(self, now: float) -> None:
        """Now and then, drop what nobody waits for any more, so that it does not fill the queue."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        for turns in self._turns.values():
            for call in turns.calls():
                self._is_dead(call, now)
            self._release_dead(turns)
        for kind, retries in self._retries.items():
            self._retries[kind] = deque(job for job in retries if not self._is_dead(job.call, now))

    def _release_dead(self, turns: Turns) -> None:
        rows = turns.remove_over()
        self._admission.release(*rows)
        self.counters.freed += len(rows)

    def _is_dead(self, call: Call[Row], now: float) -> bool:
        known = call.over
        dead = is_dead(call, now)
        self.counters.expired += dead and not known
        return dead


def _by_kind(rows: Iterable[Row]) -> dict[Kind, list[Row]]:
    found: dict[Kind, list[Row]] = {}
    for row in rows:
        found.setdefault(Kind.of(row), []).append(row)
    return found
