"""Where a command's results come from: an engine in this process, or a server."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from triptych_cli.common.decoding import Decoding
from triptych_cli.common.errors import needs
from triptych_cli.common.options import AUTO, asks_server
from triptych_embedded.repository import embedded_repository

LENGTH = "length"  # a finish reason
EMBEDDED_CALL = 1_024  # texts handed to the engine at once
FIELD = re.compile(r"(?:contents|pairs|inputs|images)\[(\d+)\](?:\.\w+)?")  # how an error names one input


@dataclass(frozen=True)
class Place:
    """Which model the command line asks for, and where; empty members leave the choice open."""

    models: Path | None = None
    model: str = ""
    server: str = ""
    precision: str | None = None
    device: str = AUTO
    gpu_memory_limit: str = ""


@dataclass(frozen=True)
class Request(Place):
    """A translation that the command line asks for; empty members leave the choice to the model."""

    source_language: str = ""
    target_language: str = ""
    decoding: Decoding = field(default_factory=Decoding)


@dataclass(frozen=True)
class Candidate:
    """One translation of a text."""

    text: str
    finish_reason: str  # "stop" or "length"
    token_count: int
    score: float | None = None
    alignment: Sequence[Sequence[float]] | None = None  # for each token its attention over the source tokens
    spans: Sequence[tuple[int, int]] = ()  # of the tokens in `text`, code points; only with an alignment


@dataclass(frozen=True)
class Translated:
    """What became of one text."""

    candidates: Sequence[Candidate]  # best first, at least one
    source_token_count: int
    source_spans: Sequence[tuple[int, int]] = ()  # of the source tokens, ends of sentences empty; only with an alignment

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text

    @property
    def truncated(self) -> bool:
        """It ran into a length limit."""
        return self.candidates[0].finish_reason == LENGTH


@dataclass(frozen=True)
class Scored:
    """How likely the model finds a translation; natural logarithms."""

    log_probability: float
    token_log_probabilities: Sequence[float]


class InputError(Exception):
    """One text or image of a batch cannot be used."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index = index


class BackendError(Exception):
    """The request as a whole failed; the message is one line."""


class Backend(Protocol):
    """Translates. A context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *details: object) -> None: ...

    @property
    def batch(self) -> int:
        """How many texts one `translate` should get."""
        ...

    def translate(self, texts: Sequence[str]) -> list[Translated]:
        """Order is kept.

        Raises:
            InputError: one of the texts is the cause.
            BackendError: anything else.
        """
        ...

    def stream(self, text: str) -> Iterator[str | Translated]:
        """Pieces, then the whole.

        Raises:
            InputError: the text is the cause.
            BackendError: anything else.
        """
        ...

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        """Sources with their translations; order is kept.

        Raises:
            InputError: one of the pairs is the cause.
            BackendError: anything else.
        """
        ...


def open_backend(request: Request) -> Backend:
    """A server's client if the command is for one, else an engine in this process.

    Raises:
        click.ClickException: options contradict each other, or an extra is missing.
    """
    if not asks_server():
        needs("triptych_serving.repository.registry", "serve")
        from triptych_embedded.models import EmbeddedBackend  # noqa: PLC0415

        return EmbeddedBackend(request, request.models or embedded_repository())
    from triptych_cli.translation.remote import RemoteBackend  # noqa: PLC0415

    return RemoteBackend(request)
