"""What a translator is asked, and what it answers: plain text, sentence by sentence. Who asks whom is not said here."""

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # [start, end) in Unicode code points


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which words of a translation come from which of the source.

    Args:
        source: where each source token stands in the text; the end of the sentence is empty.
        target: where each target token stands in the translation.
        weights: for each target token one for each source token, with a sum of 1: attention.
    """

    source: Sequence[Span]
    target: Sequence[Span]
    weights: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class SentenceRequest:
    """A sentence for the translator. Equal ones have equal answers."""

    text: str
    aligned: bool = False  # the alignment is wanted too; costs time
    prefix: str = ""  # the translation must begin so


@dataclass(frozen=True, slots=True)
class SentenceTranslation:
    """Its translation."""

    text: str
    alignment: Alignment | None = None
    truncated: bool = False  # it ran into the length limit


@dataclass(frozen=True, slots=True)
class Refusal:
    """The translator cannot take this sentence: it is too long, or has characters that it cannot read."""

    problem: str


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A sentence and its translation, as readers see them; what bilingual outputs and memories are made of."""

    source: str
    target: str
