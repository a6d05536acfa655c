"""A lane without a runtime: its rows say 7, 7, 7 until their limit."""

import math
import threading
from collections.abc import Callable, Sequence

from triptych_serving.scheduling.decode_scheduler import Job
from triptych_serving.scheduling.request import Finish

POISON = 13  # a row whose source begins so makes every batch fail that it is part of
INDIGESTIBLE = 14  # one that fails when it is encoded


class Gate:
    """Lets as many steps pass as it is told to."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = 0.0

    def allow(self, steps: float = 1) -> None:
        with self._changed:
            self._left += steps
            self._changed.notify_all()

    def open(self) -> None:
        self.allow(math.inf)

    def pass_one(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._left >= 1)
            self._left -= 1


class StubLane:
    """For one worker; its steps wait at `gate`, if there is one."""

    def __init__(self, slots: int = 8, gate: Gate | None = None) -> None:
        self.slots = slots
        self.jobs: list[Job] = []
        self.steps = 0
        self.batches: list[int] = []
        self._gate = gate

    @property
    def news(self) -> Sequence[Job]:
        return self.jobs

    @property
    def free(self) -> int:
        return self.slots - len(self.jobs)

    @property
    def bytes(self) -> int:
        return 0

    def warm_up(self) -> None:
        """Nothing to warm."""

    def join(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.row.source[0] == INDIGESTIBLE:
                raise RuntimeError("cannot encode")
            self.jobs.append(job)

    def leave(self, jobs: Sequence[Job]) -> None:
        self.jobs = [job for job in self.jobs if job not in jobs]

    def step(self) -> list[Job]:
        if self._gate is not None:
            self._gate.pass_one()
        self.steps += 1
        self.batches.append(len(self.jobs))
        if any(job.row.source[0] == POISON for job in self.jobs):
            raise RuntimeError("cannot step")
        for job in self.jobs:
            job.row.tokens.append(7)
        ended = [job for job in self.jobs if len(job.row.tokens) == job.row.max_tokens]
        for job in ended:
            job.row.finish = Finish.LENGTH
        self.leave(ended)
        return ended


def factory(lane: StubLane) -> Callable[[], StubLane]:
    """Gives a worker this lane."""
    return lambda: lane
