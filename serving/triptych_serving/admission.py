"""Who may join a queue, and who has left it: the part of queueing that all engines share."""

from dataclasses import dataclass
from typing import Any

from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.row import Call, Measured

RETRY_AFTER_SECONDS = 0.5  # what a refused caller is told to wait; roughly what a full batch takes
SWEEP_SECONDS = 0.05  # between two looks through a whole queue


@dataclass(frozen=True)
class QueueLimits:
    """Bounds of a queue."""

    waiting_rows: int = 16_384
    waiting_tokens: int = 1_048_576  # tokens of all waiting rows


class Admission:
    """Counts what waits in one queue."""

    def __init__(self, limits: QueueLimits) -> None:
        self.rows = 0
        self.tokens = 0
        self._limits = limits
        self._closed = False

    def admit(self, call: Call[Any], now: float) -> None:
        """Count all rows of a call as waiting, or none.

        Raises:
            UnavailableError: the queue is closed.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full.
            DeadlineError: the call's deadline has passed already.
        """
        if self._closed:
            raise UnavailableError("the model is shutting down")
        if call.deadline is not None and call.deadline <= now:
            raise DeadlineError("the deadline had passed on arrival")
        rows, tokens = len(call.rows), call.tokens
        _refuse(call.field, "rows", self.rows, rows, self._limits.waiting_rows)
        _refuse(call.field, "tokens", self.tokens, tokens, self._limits.waiting_tokens)
        call.arrived = now
        self.rows += rows
        self.tokens += tokens

    def release(self, *rows: Measured) -> None:
        """These wait no longer."""
        self.rows -= len(rows)
        self.tokens -= sum(row.size for row in rows)

    def close(self) -> None:
        """Refuse what comes from now on."""
        self._closed = True

    def reset(self) -> None:
        """Nothing waits any more."""
        self.rows = self.tokens = 0


def is_dead(call: Call[Any], now: float) -> bool:
    """Nobody waits for its result any more; a call whose deadline has passed fails here."""
    if not call.over and call.deadline is not None and call.deadline <= now:
        call.fail(DeadlineError("the deadline passed before the answer was ready"))
    return call.over


def _refuse(field: str, name: str, held: int, more: int, limit: int) -> None:
    if more > limit:
        raise InvalidInputError(field, f"{more:,} {name} in one request, at most {limit:,} can wait; send fewer")
    if held + more > limit:
        raise OverloadedError(f"the queue is full: {held:,} {name} wait, {more:,} more exceed {limit:,}", RETRY_AFTER_SECONDS)
