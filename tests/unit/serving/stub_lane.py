"""A lane without a runtime: its rows decode 7, 7, 7 until their limit."""

import math
import threading
from collections.abc import Sequence

from triptych_serving.scheduling.request import Finish, Row

POISON = 13  # first source token of a row that makes every step with it fail
INDIGESTIBLE = 14  # first source token of a row that cannot be encoded


class Gate:
    """Blocks steps until they are allowed."""

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
    """The lane of one worker; its steps wait at `gate`, if there is one."""

    def __init__(self, slots: int = 8, gate: Gate | None = None) -> None:
        self.slots = slots
        self.rows: list[Row] = []
        self.steps = 0
        self.batches: list[int] = []
        self._gate = gate

    @property
    def updated_rows(self) -> Sequence[Row]:
        return self.rows

    @property
    def free(self) -> int:
        return self.slots - len(self.rows)

    @property
    def bytes(self) -> int:
        return 0

    def warm_up(self) -> None:
        """Do nothing."""

    def join(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.source[0] == INDIGESTIBLE:
                raise RuntimeError("cannot encode")
            self.rows.append(row)

    def leave(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in self.rows if row not in rows]

    def reset(self) -> None:
        self.rows = []

    def step(self) -> list[Row]:
        if self._gate is not None:
            self._gate.pass_one()
        self.steps += 1
        self.batches.append(len(self.rows))
        if any(row.source[0] == POISON for row in self.rows):
            raise RuntimeError("cannot step")
        for row in self.rows:
            row.tokens.append(7)
        ended = [row for row in self.rows if len(row.tokens) == row.max_tokens]
        for row in ended:
            row.finish = Finish.LENGTH
        self.leave(ended)
        return ended
