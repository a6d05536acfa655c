"""What engines work on: rows (a text or an image each), and the calls that they belong to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.errors import ServingError


class Finish(Enum):
    """Why a row of the decode engine ended."""

    STOP = "stop"  # the model ended the sentence
    LENGTH = "length"  # the row's own limit


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation of a row."""

    tokens: tuple[int, ...]  # end of sentence not included, a forced prefix is
    finish: Finish
    log_probability: float | None = None  # natural logarithm, end of sentence and prefix included; None where not asked for
    score: float | None = None  # what hypotheses are ranked by: log_probability / length^length_penalty + coverage penalty
    attention: NDArray[np.float32] | None = None  # [tokens, source tokens], rows sum to 1; None where not asked for


@dataclass(frozen=True, slots=True)
class FrameTokens:
    """How many of a row's tokens are the model's frame and not the texts': nobody is shown them."""

    before: int = 0  # of the source's first
    after: int = 0  # of the source's last
    forced: int = 0  # of the translation's first


UNFRAMED = FrameTokens()


@dataclass(eq=False, slots=True)
class Row:
    """One text to translate: written by the engine's thread alone, read by others once `finish` is set."""

    source: Sequence[int]  # ids, end of sentence and frame included
    max_tokens: int  # the most tokens to produce, prefix included, end of sentence not
    search: SearchParams = GREEDY
    prefix: tuple[int, ...] = ()  # the translation starts with these ids, first of them those that the frame forces
    frame: FrameTokens = UNFRAMED
    shortlist: NDArray[np.int64] | None = None  # the only tokens that it may need, each once; None: any
    tokens: list[int] = field(
        default_factory=list
    )  # settled so far; in the end the best hypothesis', end of sentence not included
    hypotheses: tuple[Hypothesis, ...] = ()  # best first
    finish: Finish | None = None  # of the best; set last
    started: float = 0.0  # clock seconds when its prefill began
    first_token: float = 0.0
    ended: float = 0.0
    alone: bool = False  # its batch failed; it is tried once more by itself

    @property
    def size(self) -> int:
        """Source tokens."""
        return len(self.source)

    @property
    def text_size(self) -> int:
        """Those of the text itself."""
        return len(self.source) - self.frame.before - self.frame.after

    def shown(self, tokens: Sequence[int]) -> Sequence[int]:
        """A translation's own tokens."""
        return tokens[self.frame.forced :] if self.frame.forced else tokens


@dataclass(eq=False, slots=True)
class Item:
    """One text or image for a graph that runs once: written by the engine's threads, read by others once its call is over."""

    payload: Any  # what the runner needs to prepare it
    size: int  # tokens of a text, the same number for every image: what queue and padding are measured in; at least 1
    result: Any = None
    started: float = 0.0  # clock seconds when its batch ran
    ended: float = 0.0
    alone: bool = False  # its batch failed; it is tried once more by itself


class Measured(Protocol):
    """What a queue must know of a row."""

    @property
    def size(self) -> int:
        """Tokens."""


RowT = TypeVar("RowT", bound=Measured)


class Listener(Protocol):
    """Who waits for a call. Runs in an engine's thread: hand over and return. A subclass may hear of the end alone."""

    def on_token(self, row: Row) -> None:
        """`row.tokens` may have grown, or the row is finished."""
        return

    def on_end(self) -> None:
        """All rows have finished, or `Call.error` is set."""


class Call(Generic[RowT]):
    """The rows of one request: they share deadline, cancellation and fate.

    Args:
        rows: at least one.
        listener: told about tokens and the end.
        deadline: clock seconds after which the answer is worthless, or None.
        streams: the listener wants to hear of every token.
        field: the request's field that the rows come from, for errors.

    Raises:
        ValueError: there are no rows, so nothing would ever end the call.
    """

    def __init__(
        self,
        rows: Sequence[RowT],
        listener: Listener,
        deadline: float | None = None,
        streams: bool = False,
        field: str = "contents",
    ) -> None:
        if not rows:
            raise ValueError("a call has at least one row")
        self.rows = tuple(rows)
        self.listener = listener
        self.deadline = deadline
        self.streams = streams
        self.field = field
        self.arrived = 0.0
        self.foretold = 0.0  # seconds from there to the end, where the queue ventured a forecast
        self.error: ServingError | None = None
        self.tokens = sum(row.size for row in self.rows)  # they keep their sizes
        self._left = len(self.rows)

    @property
    def over(self) -> bool:
        """Nothing more will be done for it."""
        return self.error is not None or self._left == 0

    def count_down(self) -> bool:
        """One row has its result. True with the last one of a call that has not failed: the listener is to be told."""
        self._left -= 1
        return self._left == 0 and self.error is None

    def row_ended(self) -> None:
        """One row has its result; tells the listener of the last one."""
        if self.count_down():
            self.listener.on_end()

    def fail(self, error: ServingError) -> None:
        """End the call without a result; its rows leave the engine before the next step. The first error counts."""
        if not self.over:
            self.error = error
            self.listener.on_end()
