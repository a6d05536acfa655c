"""Which rows run next: admission, fairness between calls, cancellation and deadlines. No runtime, no threads, no clock.

Waiting rows stand in one queue a call, and the calls take turns: a call of 2,000 rows delays a call of one row by one turn.
Callers hold a lock around every method.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triptych_serving.admission import SWEEP_SECONDS, Admission, QueueLimits, is_dead
from triptych_serving.row import Call, Row


@dataclass(frozen=True)
class SchedulerLimits(QueueLimits):
    """Bounds of the queue and of one admission."""

    prefill_tokens: int = 512  # padded source tokens encoded between two steps, while other rows wait for the next one
    refill_rows: int = 4  # with a long queue, so many slots (a quarter at most) are filled at once: encoding one row is dear


@dataclass(frozen=True)
class Job:
    """A row and the call that it is for."""

    row: Row
    call: Call[Row]


@dataclass(frozen=True)
class Plan:
    """What one worker does before its next step."""

    leave: tuple[Job, ...] = ()
    join: tuple[Job, ...] = ()


class Scheduler:
    """The queue of one engine."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._admission = Admission(limits)
        self._turns: deque[tuple[Call[Row], deque[Row]]] = deque()
        self._retries: deque[Job] = deque()
        self._next_sweep = 0.0

    @property
    def waiting(self) -> int:
        """Rows in the queue, those to be tried again included."""
        return self._admission.rows + len(self._retries)

    def submit(self, call: Call[Row], now: float) -> None:
        """Queue all rows of a call, or none.

        Raises:
            UnavailableError: the engine is shutting down.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full.
            DeadlineError: the call's deadline has passed already.
        """
        self._admission.admit(call, now)
        self._turns.append((call, deque(call.rows)))

    def retry(self, jobs: Iterable[Job]) -> None:
        """Queue rows whose batch failed, each to run by itself, before everything else."""
        for job in jobs:
            job.row.alone = True
            job.row.tokens.clear()
            self._retries.append(job)

    def close(self) -> None:
        """Refuse what comes from now on; what waits is still served."""
        self._admission.close()

    def drain(self) -> list[Call[Row]]:
        """Empty the queue; returns the calls that were in it."""
        calls = [call for call, _ in self._turns] + [job.call for job in self._retries]
        self._turns.clear()
        self._retries.clear()
        self._admission.reset()
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
        leave = tuple(job for job in running if is_dead(job.call, now))
        if any(job.row.alone for job in running[:1]):
            return Plan(leave)
        staying = len(running) - len(leave)
        return Plan(leave, tuple(self._admit(staying, free + len(leave), idle_workers, now)))

    def _admit(self, running: int, free: int, idle_workers: int, now: float) -> list[Job]:
        while self._retries and is_dead(self._retries[0].call, now):
            self._retries.popleft()
        if self._retries:
            # Running rows finish first, then the retried row has the worker to itself.
            return [self._retries.popleft()] if running == 0 else []
        waiting = self._admission.rows
        refill = min(self._limits.refill_rows, waiting, max(1, (running + free) // 4))
        if not waiting or (running and free < refill):
            return []
        share = waiting if running else math.ceil(waiting / max(1, idle_workers))
        budget = self._limits.prefill_tokens if running else math.inf
        return self._take(min(free, share), budget, now)

    def _take(self, rows: int, tokens: float, now: float) -> list[Job]:
        """Up to `rows` rows, the calls taking turns: at least one, then as many as fit into `tokens`, padded."""
        taken: list[Job] = []
        longest = 0
        while self._turns and len(taken) < rows:
            call, queue = self._turns[0]
            if is_dead(call, now):
                self._admission.release(*self._turns.popleft()[1])
                continue
            longest = max(longest, len(queue[0].source))
            if taken and longest * (len(taken) + 1) > tokens:
                break
            taken.append(Job(queue.popleft(), call))
            self._admission.release(taken[-1].row)
            self._turns.rotate(-1)
            if not queue:
                self._turns.pop()
        return taken

    def _sweep(self, now: float) -> None:
        """Now and then, drop what nobody waits for any more, so that it does not fill the queue."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        dead = [queue for call, queue in self._turns if is_dead(call, now)]
        if dead:
            self._turns = deque(turn for turn in self._turns if not turn[0].over)
            for queue in dead:
                self._admission.release(*queue)
        self._retries = deque(job for job in self._retries if not is_dead(job.call, now))
