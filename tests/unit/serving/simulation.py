"""An overloaded engine in the time of the test: the real queue, and steps and runs that take what a formula says."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from triptych_serving.errors import DeadlineError, OverloadedError
from triptych_serving.scheduling.batch_scheduler import BatchLimits, BatchScheduler, Ticket
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, Job, LaneKind
from triptych_serving.scheduling.request import Call, Item, Row

from .calls import RecordedCall, Recorder

TOKENS = 20  # of a row


@dataclass(frozen=True)
class Traffic:
    """Calls at random times."""

    rate: float  # calls a second
    seconds: float
    deadline: float | None
    rows: tuple[int, ...] = (1,)  # of a call, one of these
    lengths: tuple[int, int] = (20, 40)  # tokens that a row decodes
    seed: int = 1

    def __iter__(self) -> Iterator[tuple[float, int, random.Random]]:
        """When calls come, and with how many rows."""
        rng = random.Random(self.seed)
        now = 0.0
        while (now := now + rng.expovariate(self.rate)) < self.seconds:
            yield now, rng.choice(self.rows), rng


@dataclass
class Outcome:
    """What became of them."""

    calls: Counter[str] = field(default_factory=Counter)
    rows: int = 0  # answered in time
    latencies: list[float] = field(default_factory=list)
    end: float = 0.0  # clock seconds when the last one was over


@dataclass
class DecodeSimulation:
    """One worker of a decode engine."""

    slots: int = 32
    base: float = 0.002  # seconds of a step
    each: float = 0.001  # and for each row of it
    outcome: Outcome = field(default_factory=Outcome)
    running: list[Job] = field(default_factory=list)
    now: float = 0.0

    def run(self, traffic: Traffic, limits: DecodeLimits | None = None) -> Outcome:
        """Until the last call is over."""
        scheduler = DecodeScheduler(limits or DecodeLimits(), lambda kind: len(self.running), self.slots // 4)
        coming = iter(traffic)
        arrival = next(coming, None)
        while arrival or self.running or scheduler.waiting:
            if arrival and not self.running and not scheduler.waiting:
                self.now = max(self.now, arrival[0])
            while arrival and arrival[0] <= self.now:
                self._submit(scheduler, arrival, traffic)
                arrival = next(coming, None)
            self._step(scheduler)
        self.outcome.end = self.now
        return self.outcome

    def _submit(self, scheduler: DecodeScheduler, arrival: tuple[float, int, random.Random], traffic: Traffic) -> None:
        when, rows, rng = arrival
        deadline = None if traffic.deadline is None else when + traffic.deadline
        call = RecordedCall([Row([5] * TOKENS, rng.randint(*traffic.lengths)) for _ in range(rows)], Recorder(), deadline)
        try:
            scheduler.submit(call, when)
        except (OverloadedError, DeadlineError) as error:
            self.outcome.calls[type(error).__name__] += 1

    def _step(self, scheduler: DecodeScheduler) -> None:
        idle = 0 if self.running else 1
        plan = scheduler.plan(LaneKind.GREEDY, self.running, self.slots - len(self.running), idle, self.now)
        for job in plan.leave:
            self.outcome.calls["left"] += job.call.rows[0] is job.row
        gone = set(map(id, plan.leave))
        self.running = [job for job in self.running if id(job) not in gone] + list(plan.join)
        for job in plan.join:
            job.row.started = self.now
        self.now += self.base + self.each * (len(self.running) + len(plan.join))
        for job in self.running:
            job.row.tokens.append(7)
        for job in [job for job in self.running if len(job.row.tokens) == job.row.max_tokens]:
            self._end(scheduler, job)

    def _end(self, scheduler: DecodeScheduler, job: Job) -> None:
        job.row.ended = self.now
        self.running.remove(job)
        scheduler.served(job.row)
        job.call.row_ended()
        if job.call.over and job.call.error is None:
            scheduler.finish(job.call, self.now)
            self._note(job.call)

    def _note(self, call: Call[Row]) -> None:
        in_time = call.deadline is None or self.now <= call.deadline
        self.outcome.calls["answered" if in_time else "late"] += 1
        self.outcome.rows += len(call.rows) * in_time
        self.outcome.latencies.append(self.now - call.arrived)


@dataclass
class BatchSimulation:
    """A one-shot engine with one run at a time."""

    base: float = 0.002  # seconds of a run
    token: float = 0.0005  # and for each of its tokens
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, traffic: Traffic, limits: BatchLimits | None = None) -> Outcome:
        """Until the last call is over."""
        former = BatchScheduler(limits or BatchLimits())
        coming = iter(traffic)
        arrival = next(coming, None)
        now = 0.0
        while arrival or former.waiting:
            if arrival and (arrival[0] <= now or not former.waiting):
                now = max(now, arrival[0])
                self._submit(former, arrival, traffic)
                arrival = next(coming, None)
            elif batch := former.plan(1, now):
                seconds = self.base + self.token * sum(ticket.item.size for ticket in batch)
                now += seconds
                former.served(seconds)
                self._end(former, batch, now)
        self.outcome.end = now
        return self.outcome

    def _end(self, former: BatchScheduler, batch: tuple[Ticket, ...], now: float) -> None:
        for ticket in batch:
            if ticket.call.count_down():
                former.finish(ticket.call, now)
                self._note(ticket.call, now)

    def _submit(self, former: BatchScheduler, arrival: tuple[float, int, random.Random], traffic: Traffic) -> None:
        when, rows, rng = arrival
        deadline = None if traffic.deadline is None else when + traffic.deadline
        call = RecordedCall([Item(None, rng.randint(*traffic.lengths)) for _ in range(rows)], Recorder(), deadline)
        try:
            former.submit(call, when)
        except (OverloadedError, DeadlineError) as error:
            self.outcome.calls[type(error).__name__] += 1

    def _note(self, call: Call[Item], now: float) -> None:
        in_time = call.deadline is None or now <= call.deadline
        self.outcome.calls["answered" if in_time else "late"] += 1
        self.outcome.rows += len(call.rows) * in_time
        self.outcome.latencies.append(now - call.arrived)
