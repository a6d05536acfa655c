"""Overloaded engines in simulated time: the real schedulers, with steps and runs whose duration is a formula."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from triptych_serving.errors import DeadlineError, OverloadedError
from triptych_serving.scheduling.admission import CallQueue
from triptych_serving.scheduling.batch_scheduler import BatchLimits, BatchScheduler
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, LaneKind
from triptych_serving.scheduling.request import Call, Item, Row

from .calls import RecordedCall

TOKENS = 20  # source tokens of a row to decode


@dataclass(frozen=True)
class Traffic:
    """Calls at random times."""

    rate: float  # calls a second
    seconds: float
    deadline: float | None
    rows: tuple[int, ...] = (1,)  # of a call, one of these
    lengths: tuple[int, int] = (20, 40)  # tokens that a row decodes, or that an item has
    seed: int = 1

    def __iter__(self) -> Iterator[tuple[float, int, random.Random]]:
        """Yield the time of each call and its number of rows."""
        rng = random.Random(self.seed)
        now = 0.0
        while (now := now + rng.expovariate(self.rate)) < self.seconds:
            yield now, rng.choice(self.rows), rng


@dataclass
class Simulation(ABC):
    """An engine at work, and the outcomes of its calls."""

    calls: Counter[str] = field(default_factory=Counter)  # by outcome
    done: int = 0  # rows with results in time
    latencies: list[float] = field(default_factory=list)
    now: float = 0.0  # clock seconds

    def run(self, traffic: Traffic, limits: Any = None) -> "Simulation":
        """Run until the last call is over."""
        queue = self.make_queue(limits)
        arrivals = iter(traffic)
        arrival = next(arrivals, None)
        while arrival or self.is_busy or queue.waiting:
            if arrival and not self.is_busy and not queue.waiting:
                self.now = max(self.now, arrival[0])
            while arrival and arrival[0] <= self.now:
                when, rows, rng = arrival
                deadline = None if traffic.deadline is None else when + traffic.deadline
                call = RecordedCall([self.make_row(rng.randint(*traffic.lengths)) for _ in range(rows)], deadline)
                try:
                    queue.submit(call, when)
                except (OverloadedError, DeadlineError) as error:
                    self.calls[type(error).__name__] += 1
                arrival = next(arrivals, None)
            self.step(queue)
        return self

    is_busy = False

    @abstractmethod
    def make_queue(self, limits: Any) -> CallQueue[Any]: ...

    @abstractmethod
    def make_row(self, length: int) -> Any: ...

    @abstractmethod
    def step(self, queue: Any) -> None: ...

    def end(self, queue: CallQueue[Any], row: Any) -> None:
        """Count a row with its result."""
        call: Call[Any] = row.call
        if call.count_down():
            queue.finish(call, self.now)
            in_time = call.deadline is None or self.now <= call.deadline
            self.calls["answered" if in_time else "late"] += 1
            self.done += len(call.rows) * in_time
            self.latencies.append(self.now - call.arrived)


@dataclass
class DecodeSimulation(Simulation):
    """One worker of a decode engine."""

    slots: int = 32
    base: float = 0.002  # seconds of a step
    each: float = 0.001  # and for each row of it
    running: list[Row] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:  # type: ignore[override]
        return bool(self.running)

    def make_queue(self, limits: DecodeLimits | None) -> DecodeScheduler:
        return DecodeScheduler(limits or DecodeLimits(), lambda _: len(self.running), self.slots // 4, self.slots)

    def make_row(self, length: int) -> Row:
        return Row([5] * TOKENS, length)

    def step(self, queue: DecodeScheduler) -> None:
        idle = 0 if self.running else 1
        plan = queue.plan(LaneKind.GREEDY, self.running, self.slots - len(self.running), idle, self.now)
        self.calls["left"] += sum(row.call.rows[0] is row for row in plan.leave)
        gone = set(map(id, plan.leave))
        self.running = [row for row in self.running if id(row) not in gone] + list(plan.join)
        for row in plan.join:
            row.started = self.now
        self.now += self.base + self.each * (len(self.running) + len(plan.join))
        for row in self.running:
            row.tokens.append(7)
        for row in [row for row in self.running if len(row.tokens) == row.max_tokens]:
            row.ended = self.now
            self.running.remove(row)
            queue.served(row)
            self.end(queue, row)


@dataclass
class BatchSimulation(Simulation):
    """A one-shot engine with one run at a time."""

    base: float = 0.002  # seconds of a run
    token: float = 0.0005  # and for each of its tokens

    def make_queue(self, limits: BatchLimits | None) -> BatchScheduler:
        return BatchScheduler(limits or BatchLimits())

    def make_row(self, length: int) -> Item:
        return Item(None, length)

    def step(self, queue: BatchScheduler) -> None:
        if batch := queue.plan(1, self.now):
            seconds = self.base + self.token * sum(item.size for item in batch)
            self.now += seconds
            queue.served(seconds)
            for item in batch:
                self.end(queue, item)
