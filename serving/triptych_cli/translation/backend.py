"""The interface of translation backends, and their results."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from triptych.decoding import DecodingOptions
from triptych_cli.common.errors import needs
from triptych_cli.common.options import asks_server
from triptych_embedded.request import InputError, TranslationRequest

LENGTH = "length"  # a finish reason


@dataclass(frozen=True)
class Candidate:
    """One translation of a text."""

    text: str
    finish_reason: str  # "stop" or "length"
    token_count: int
    score: float | None = None
    alignment: Sequence[Sequence[float]] | None = None  # for each target token its attention over the source tokens
    spans: Sequence[tuple[int, int]] = ()  # of the tokens in `text`, in code points; only with an alignment


@dataclass(frozen=True)
class TextTranslation:
    """The translations of one text, best first; at least one."""

    candidates: Sequence[Candidate]
    source_token_count: int
    source_spans: Sequence[tuple[int, int]] = ()  # of the source tokens, empty for ends of sentences; only with an alignment

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text

    @property
    def truncated(self) -> bool:
        """The best translation reached a length limit."""
        return self.candidates[0].finish_reason == LENGTH


@dataclass(frozen=True)
class PairScore:
    """Natural logarithms of the probability of a translation."""

    log_probability: float
    token_log_probabilities: Sequence[float]


class Backend(Protocol):
    """Translates and scores texts. All methods keep the order; a bad input has an InputError in place of its result."""

    batch: int
    """Number of texts to pass to one call."""

    def translate(self, texts: Sequence[str], options: DecodingOptions | None = None) -> list[TextTranslation | InputError]:
        """Translate texts, by default with the options of the command."""

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        """Yield pieces of the translation, then the whole. Raises InputError: the text is bad."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore | InputError]:
        """Score pairs of source and translation."""


def default_options(request: TranslationRequest, count: int) -> DecodingOptions:
    """Return the options of a request for `count` texts, each with the same prefix."""
    return replace(request.decoding, target_prefix=request.decoding.target_prefix * count)


def open_backend(request: TranslationRequest) -> AbstractContextManager[Backend]:
    """Open a server's client if the command is for one, else load an engine in this process.

    Raises:
        click.ClickException: options contradict each other, or an extra is missing.
    """
    if asks_server():
        from triptych_cli.translation.remote import RemoteBackend

        return RemoteBackend(request)
    needs("triptych_serving.repository.registry", "serve")
    from triptych_cli.translation.embedded import open_embedded

    return open_embedded(request)
