"""Which rows run next: admission, fairness between calls, cancellation and deadlines. No runtime, no threads, no clock.

Waiting rows stand in one queue a call, and the calls take turns: a call of 2,000 rows delays a call of one row by one turn.
Callers hold a lock around every method.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.row import Call, Row

RETRY_AFTER_SECONDS = 0.5  # what a refused caller is told to wait; roughly what a full batch takes
SWEEP_SECONDS = 0.05  # between two looks through the whole queue


@dataclass(frozen=True)
class SchedulerLimits:
    """Bounds of the queue and of one admission."""

    waiting_rows: int = 16_384
    waiting_tokens: int = 1_048_576  # source tokens of all waiting rows
    prefill_tokens: int = 512  # padded source tokens encoded between two steps, while other rows wait for the next one
    refill_rows: int = 4  # with a long queue, so many slots (a quarter at most) are filled at once: encoding one row is dear


@dataclass(frozen=True)
class Job:
    """A row and the call that it is for."""

    row: Row
    call: Call


@dataclass(frozen=True)
class Plan:
    """What one worker does before its next step."""

    leave: tuple[Job, ...] = ()
    join: tuple[Job, ...] = ()


class Scheduler:
    """The queue of one engine."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._turns: deque[tuple[Call, deque[Row]]] = deque()
        self._retries: deque[Job] = deque()
        self._rows = 0
        self._tokens = 0
        self._closed = False
        self._next_sweep = 0.0

    @property
    def waiting(self) -> int:
        """Rows in the queue, those to be tried again included."""
        return self._rows + len(self._retries)

    def submit(self, call: Call, now: float) -> None:
        """Queue all rows of a call, or none.

        Raises:
            UnavailableError: the engine is shutting down.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full.
            DeadlineError: the call's deadline has passed already.
        """
        if self._closed:
            raise UnavailableError("the model is shutting down")
        if call.deadline is not None and call.deadline <= now:
            raise DeadlineError("the deadline had passed on arrival")
        self._refuse_if_full(call)
        call.arrived = now
        self._turns.append((call, deque(call.rows)))
        self._rows += len(call.rows)
        self._tokens += call.tokens

    def retry(self, jobs: Iterable[Job]) -> None:
        """Queue rows whose batch failed, each to run by itself, before everything else."""
        for job in jobs:
            job.row.alone = True
            job.row.tokens.clear()
            self._retries.append(job)

    def close(self) -> None:
        """Refuse what comes from now on; what waits is still served."""
        self._closed = True

    def drain(self) -> list[Call]:
        """Empty the queue; returns the calls that were in it."""
        calls = [call for call, _ in self._turns] + [job.call for job in self._retries]
        self._turns.clear()
        self._retries.clear()
        self._rows = self._tokens = 0
        return calls

    def plan(self, running: Sequence[Job], free: int, idle_workers: int, now: float) -> Plan:
        """Who leaves and who joins a worker's batch.

        Args:
            running: the worker's rows.
            free: its empty slots.
            idle_workers: workers without rows, this one included if it has none; a short queue is shared among them.
            now: clock seconds.
        """
        self._sweep(now)
        leave = tuple(job for job in running if self._is_dead(job, now))
        if any(job.row.alone for job in running[:1]):
            return Plan(leave)
        staying = len(running) - len(leave)
        return Plan(leave, tuple(self._admit(staying, free + len(leave), idle_workers, now)))

    def _refuse_if_full(self, call: Call) -> None:
        limits = self._limits
        for name, held, more, limit in (
            ("rows", self._rows, len(call.rows), limits.waiting_rows),
            ("tokens", self._tokens, call.tokens, limits.waiting_tokens),
        ):
            if more > limit:
                raise InvalidInputError("contents", f"{more:,} {name} in one request, at most {limit:,} can wait; send fewer")
            if held + more > limit:
                raise OverloadedError(
                    f"the queue is full: {held:,} {name} wait, {more:,} more exceed {limit:,}", RETRY_AFTER_SECONDS
                )

    def _admit(self, running: int, free: int, idle_workers: int, now: float) -> list[Job]:
        while self._retries and self._is_dead(self._retries[0], now):
            self._retries.popleft()
        if self._retries:
            # Running rows finish first, then the retried row has the worker to itself.
            return [self._retries.popleft()] if running == 0 else []
        refill = min(self._limits.refill_rows, self._rows, max(1, (running + free) // 4))
        if not self._rows or (running and free < refill):
            return []
        share = self._rows if running else math.ceil(self._rows / max(1, idle_workers))
        budget = self._limits.prefill_tokens if running else math.inf
        return self._take(min(free, share), budget, now)

    def _take(self, rows: int, tokens: float, now: float) -> list[Job]:
        """Up to `rows` rows, the calls taking turns: at least one, then as many as fit into `tokens`, padded."""
        taken: list[Job] = []
        longest = 0
        while self._turns and len(taken) < rows:
            call, queue = self._turns[0]
            if self._call_is_dead(call, now):
                self._forget(*self._turns.popleft()[1])
                continue
            longest = max(longest, len(queue[0].source))
            if taken and longest * (len(taken) + 1) > tokens:
                break
            taken.append(Job(queue.popleft(), call))
            self._forget(taken[-1].row)
            self._turns.rotate(-1)
            if not queue:
                self._turns.pop()
        return taken

    def _sweep(self, now: float) -> None:
        """Now and then, drop what nobody waits for any more, so that it does not fill the queue."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        dead = [queue for call, queue in self._turns if self._call_is_dead(call, now)]
        if dead:
            self._turns = deque(turn for turn in self._turns if not turn[0].over)
            for queue in dead:
                self._forget(*queue)
        self._retries = deque(job for job in self._retries if not self._is_dead(job, now))

    def _is_dead(self, job: Job, now: float) -> bool:
        return self._call_is_dead(job.call, now)

    def _call_is_dead(self, call: Call, now: float) -> bool:
        if not call.over and call.deadline is not None and call.deadline <= now:
            call.fail(DeadlineError("the deadline passed before the translation was done"))
        return call.over

    def _forget(self, *rows: Row) -> None:
        self._rows -= len(rows)
        self._tokens -= sum(len(row.source) for row in rows)
