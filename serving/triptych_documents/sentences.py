"""Requests to a translator and its results, one sentence at a time. Transport and model are up to the caller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # [start, end) in Unicode code points
HumanLookup = Callable[[str], str | None]  # returns people's translation of exactly this text of a document, if there is one


@dataclass(frozen=True, slots=True)
class Alignment:
    """Attention weights between the tokens of a sentence and its translation."""

    source: Sequence[Span]  # span of each source token; the end-of-sentence token is empty
    target: Sequence[Span]  # span of each target token
    weights: Sequence[Sequence[float]]  # one row per target token with one weight per source token; each row sums to 1


@dataclass(frozen=True, slots=True)
class SentenceRequest:
    """A sentence to translate. Equal requests have equal results."""

    text: str
    aligned: bool = False  # also return the alignment, which takes extra time


@dataclass(frozen=True, slots=True)
class SentenceTranslation:
    """Translation of one sentence."""

    text: str
    alignment: Alignment | None = None
    truncated: bool = False  # reached the length limit


@dataclass(frozen=True, slots=True)
class Refusal:
    """The translator rejected the sentence: too long, or characters that it cannot read."""

    problem: str


SentenceResult = SentenceTranslation | Refusal


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A sentence and its translation without markup, for bilingual files and translation memories."""

    source: str
    target: str
