"""Greedy search on the CPU: the graph takes the arg-max, so that no array of logits reaches Python."""

from collections.abc import Sequence

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.kv_cache import StepArrays
from triptych_serving.decoding.lane import encode_rows, finish_row
from triptych_serving.decoding.slots import FREE, Slots
from triptych_serving.scheduling.request import Finish, Row


class GreedyLane:
    """A lane of which each row takes one slot.

    Args:
        slots: over the step graph: `tokens, positions, forced, caches -> next, caches`.
    """

    def __init__(self, slots: Slots, tokens: SpecialTokens) -> None:
        self._slots = slots
        self._ends = tokens.ends
        self.rows: list[Row] = []  # by slot

    @property
    def updated_rows(self) -> Sequence[Row]:
        return self.rows

    @property
    def free(self) -> int:
        return self._slots.count - len(self.rows)

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def warm_up(self) -> None:
        self._slots.warm_up()
        self._slots.used = 1
        self._run()
        self._slots.used = 0

    def join(self, rows: Sequence[Row]) -> None:
        running = [(row, slot) for slot, row in enumerate(self.rows)]
        self.rows.extend(row for row, _ in encode_rows(rows, running, self._slots))

    def leave(self, rows: Sequence[Row]) -> None:
        gone = set(map(id, rows))
        self._remove([slot for slot, row in enumerate(self.rows) if id(row) in gone])

    def reset(self) -> None:
        self.rows = []
        self._slots.used = 0

    def step(self) -> list[Row]:
        slots = self._slots
        for slot, row in enumerate(self.rows):
            slots.forced_view[slot] = _forced(row)
        self._run()
        slots.advance(len(self.rows))
        return self._remove([slot for slot, row in enumerate(self.rows) if self._append(row, slots.token_view[slot])])

    def _run(self) -> None:
        # The next tokens overwrite the newest ones, which the graph has read before it computes them.
        slots, subset = self._slots, self._slots.subset
        slots.run(
            subset.size if subset else 0, lambda: StepArrays({}, {"next": slots.tokens}, whole=subset.inputs if subset else {})
        )

    def _append(self, row: Row, token: int) -> bool:
        """Give a row its next token; True if that was its last."""
        if token in self._ends and len(row.tokens) >= row.prompt:
            finish_row(row, Finish.STOP)
            return True
        row.tokens.append(token)
        if len(row.tokens) < row.max_tokens and (row.is_stopped is None or not row.is_stopped(row.tokens)):
            return False
        finish_row(row, Finish.LENGTH)
        return True

    def _remove(self, ended: Sequence[int]) -> list[Row]:
        """Free slots, in ascending order; return their rows."""
        rows = [self.rows[slot] for slot in ended]
        for slot in reversed(ended):
            self._slots.vacate(slot)
            last = self.rows.pop()
            if slot < len(self.rows):
                self.rows[slot] = last
        return rows


def _forced(row: Row) -> int:
    """Return the next token of a row's prefix."""
    position = len(row.tokens)
    return row.prefix[position] if position < len(row.prefix) else FREE
