"""Rows, of a text or an image each, and the calls that they belong to."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.errors import ServingError

logger = logging.getLogger(__name__)


class Finish(Enum):
    """Why decoding of a row ended."""

    STOP = "stop"  # the model ended the sentence
    LENGTH = "length"  # the row reached its own limit


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation of a row."""

    tokens: tuple[int, ...]  # end of sentence not included, a forced prefix is
    finish: Finish
    log_probability: float | None = None  # natural logarithm, end of sentence and prefix included; None where not requested
    score: float | None = None  # ranks hypotheses: log_probability / length^length_penalty + coverage penalty
    attention: NDArray[np.float32] | None = None  # [tokens, source tokens], rows sum to 1; None where not requested


@dataclass(frozen=True, slots=True)
class FrameTokens:
    """Number of tokens that the model's format adds around a text, such as language codes; users never see them."""

    before: int = 0  # at the start of the source
    after: int = 0  # at the end of the source
    forced: int = 0  # at the start of the translation


UNFRAMED = FrameTokens()


@dataclass(frozen=True, slots=True)
class TokenLogProbability:
    """A token with its log-probability, and the likeliest tokens at its position with theirs."""

    token: int
    log_probability: float | None  # None: of the first token of a prompt, which nothing precedes
    top: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False, slots=True)
class EngineRow:
    """State that an engine keeps with each row: written by its threads alone, read by others once the call is over."""

    call: "Call[Any]" = field(init=False, repr=False)  # set when the queue accepts the row
    size: int = field(default=0, init=False)  # tokens, at least 1; the unit of queue limits and of padding
    order: tuple[int, float, int] = field(default=(0, 0.0, 0), init=False)  # position in a FairQueue; lower runs first
    waiting: bool = field(default=False, init=False)  # in a FairQueue
    started: float = field(default=0.0, init=False)  # clock seconds at which its prefill or batch began
    ended: float = field(default=0.0, init=False)  # clock seconds
    alone: bool = field(default=False, init=False)  # its batch failed, so that it is retried in a batch of its own

    def restart(self) -> None:
        """Drop partial results before a retry."""


RowT = TypeVar("RowT", bound=EngineRow)


@dataclass(eq=False, slots=True)
class Row(EngineRow):
    """One text to translate, or one prompt to continue. `finish` is set last: from then on other threads may read it.

    A decoder-only model has no encoder: the first token of its prompt is the source, and starts the row; the others are the
    `prompt` tokens at the start of `prefix`.
    """

    source: Sequence[int]  # ids, end of sentence and frame included
    max_tokens: int  # tokens to produce at most: prefix included, end of sentence not
    search: SearchParams = GREEDY
    prefix: tuple[int, ...] = ()  # the translation starts with these ids; the frame's forced ids come first
    frame: FrameTokens = UNFRAMED
    shortlist: NDArray[np.int64] | None = None  # the only tokens that it may need, each once; None: any
    processor: Any = field(default=None, repr=False)  # edits its logits, one for all rows of a request; None: made by the lane
    grammar: Any = field(default=None, repr=False)  # that its text follows; its own copy
    prompt: int = 0  # first tokens of `prefix` that are read before the first token is decoded, many at a time unless `scored`
    scored: bool = False  # the prompt's log-probabilities are wanted, too
    is_stopped: Callable[[Sequence[int]], bool] | None = None  # True if these tokens end with a stop sequence
    log_probabilities: list[TokenLogProbability] = field(default_factory=list)  # of `tokens`, if the search returns them
    cached: int = 0  # tokens of the prompt that were in the prefix cache
    # Final so far; at the end those of the best hypothesis, end of sentence not included.
    tokens: list[int] = field(default_factory=list)
    hypotheses: tuple[Hypothesis, ...] = ()  # best first
    finish: Finish | None = None  # of the best hypothesis
    first_token: float = 0.0  # clock seconds

    def __post_init__(self) -> None:
        self.size = len(self.source) + self.prompt

    @property
    def text_size(self) -> int:
        """Source tokens without the frame."""
        return self.size - self.frame.before - self.frame.after

    def shown(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return a translation's tokens without the frame."""
        return tokens[self.frame.forced :] if self.frame.forced else tokens

    @property
    def first_log_probability(self) -> tuple[TokenLogProbability, ...]:
        """First entry of a scored prompt, before `log_probabilities`: its first token, which has none; else nothing."""
        return (TokenLogProbability(self.source[0], None),) if self.scored else ()

    def restart(self) -> None:
        self.tokens.clear()
        self.log_probabilities.clear()
        self.cached = 0
        self.hypotheses, self.finish = (), None


@dataclass(eq=False, slots=True)
class Item(EngineRow):
    """One text or image for a graph that runs once."""

    payload: Any  # input of the runner's `prepare`
    tokens: InitVar[int]  # `size`: tokens of a text, the same number for every image of a model
    result: Any = None

    def __post_init__(self, tokens: int) -> None:
        self.size = tokens

    def restart(self) -> None:
        self.result = None


class Listener(Protocol):
    """Callbacks for the progress of a call. They run in an engine's thread: hand over and return."""

    def on_token(self, row: Row) -> None:
        """React to new `row.tokens`, or to the end of the row."""
        return

    def on_end(self) -> None:
        """React to the end of the call: all rows have finished, or `Call.error` is set."""


class Call(Generic[RowT]):
    """The rows of one request: they share deadline, cancellation and outcome.

    Args:
        rows: at least one.
        listener: called for tokens and at the end.
        deadline: clock seconds after which the result is useless, or None.
        streams: call the listener for every token; the rows get their turns one at a time.
        field: the request's field that the rows come from, for error messages.

    Raises:
        ValueError: there are no rows, so that nothing would ever end the call.
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
        self.forecast_seconds = 0.0  # from arrival to end; 0: there was no forecast
        self.waiting = 0  # rows in the queue
        self.error: ServingError | None = None
        self.size = sum([row.size for row in self.rows])  # tokens of the input
        self._left = len(self.rows)

    @property
    def over(self) -> bool:
        """True once the call has its results or has failed."""
        return self.error is not None or self._left == 0

    def count_down(self) -> bool:
        """Count one row as finished. True for the last row of a call that has not failed: call the listener then."""
        self._left -= 1
        if self._left:
            return False
        for row in self.rows:
            del row.call  # breaks the reference cycle: results are freed without the garbage collector
        return self.error is None

    def notify_end(self) -> None:
        """Call the listener at the end."""
        _guard(self.listener.on_end)

    def notify_token(self, row: RowT) -> None:
        """Call the listener of a stream for new tokens of a row."""
        _guard(self.listener.on_token, row)

    def fail(self, error: ServingError) -> None:
        """End the call with an error; its rows leave the engine before the next step. Later errors are ignored."""
        if not self.over:
            self.error = error
            self.notify_end()


def _guard(callback: Callable[..., None], *arguments: Any) -> None:
    """Call a listener; if it fails, only its own caller may notice."""
    try:
        callback(*arguments)
    except Exception:
        logger.exception("listener of a call failed")
