"""What a decode engine works on: rows (one text each), and the calls that they belong to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from triptych_serving.errors import ServingError


class Finish(Enum):
    """Why a row ended."""

    STOP = "stop"  # the model ended the sentence
    LENGTH = "length"  # the row's own limit


@dataclass(eq=False, slots=True)
class Row:
    """One text on its way: written by the engine's thread alone, read by others once `finish` is set."""

    source: Sequence[int]  # ids, end of sentence last
    max_tokens: int  # the most tokens to produce, end of sentence not included
    tokens: list[int] = field(default_factory=list)  # produced so far, end of sentence not included
    finish: Finish | None = None
    started: float = 0.0  # clock seconds when its prefill began
    first_token: float = 0.0
    ended: float = 0.0
    alone: bool = False  # its batch failed; it is tried once more by itself


class Listener(Protocol):
    """Who waits for a call. Runs in the engine's thread: hand over and return."""

    def on_token(self, row: Row) -> None:
        """`row.tokens` has grown by one."""

    def on_end(self) -> None:
        """All rows have finished, or `Call.error` is set."""


class Call:
    """The rows of one request: they share deadline, cancellation and fate.

    Args:
        rows: at least one.
        listener: told about tokens and the end.
        deadline: clock seconds after which the answer is worthless, or None.
        streams: the listener wants to hear of every token.

    Raises:
        ValueError: there are no rows, so nothing would ever end the call.
    """

    def __init__(self, rows: Sequence[Row], listener: Listener, deadline: float | None = None, streams: bool = False) -> None:
        if not rows:
            raise ValueError("a call has at least one row")
        self.rows = tuple(rows)
        self.listener = listener
        self.deadline = deadline
        self.streams = streams
        self.arrived = 0.0
        self.error: ServingError | None = None
        self._left = len(self.rows)

    @property
    def over(self) -> bool:
        """Nothing more will be done for it."""
        return self.error is not None or self._left == 0

    @property
    def tokens(self) -> int:
        """Source tokens of all rows."""
        return sum(len(row.source) for row in self.rows)

    def row_ended(self) -> None:
        """One row has its result."""
        self._left -= 1
        if self._left == 0 and self.error is None:
            self.listener.on_end()

    def fail(self, error: ServingError) -> None:
        """End the call without a result; its rows leave the engine before the next step. The first error counts."""
        if not self.over:
            self.error = error
            self.listener.on_end()
