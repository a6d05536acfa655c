"""What models answer, as plain values; the wire's messages have the same members."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """A token that may stand at a mask."""

    score: float  # probability over the whole vocabulary
    token: int  # id
    token_str: str
    sequence: str  # the text with this mask filled; other masks stay


@dataclass(frozen=True, slots=True)
class FilledMask:
    """One mask's candidates, best first."""

    candidates: tuple[MaskCandidate, ...]


@dataclass(frozen=True, slots=True)
class FilledText:
    """One text's masks, from left to right."""

    masks: tuple[FilledMask, ...]
    token_count: int  # [CLS] and [SEP] included


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """One text as a vector."""

    values: tuple[float, ...]
    token_count: int  # [CLS] and [SEP] included


@dataclass(frozen=True, slots=True)
class ScoredLabel:
    """One of a model's labels."""

    label: str
    score: float  # probability
    index: int  # the label's number in the model


@dataclass(frozen=True, slots=True)
class ClassifiedText:
    """One input's labels, best first."""

    labels: tuple[ScoredLabel, ...]
    token_count: int  # [CLS] and [SEP] included


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled part of a text."""

    label: str
    score: float  # mean probability of its tokens
    text: str
    start: int  # Unicode code points from the text's beginning
    end: int  # not included


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text's entities, from left to right."""

    entities: tuple[Entity, ...]
    token_count: int  # [CLS] and [SEP] included


@dataclass(frozen=True, slots=True)
class Answer:
    """A part of a context that answers the question."""

    text: str
    score: float  # probability of the first token times that of the last
    start: int  # Unicode code points from the context's beginning
    end: int  # not included


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question's answers, best first."""

    answers: tuple[Answer, ...]
    token_count: int  # question and context, [CLS] and [SEP] included


@dataclass(frozen=True, slots=True)
class ClassifiedImage:
    """One image's labels, best first."""

    labels: tuple[ScoredLabel, ...]
    width: int  # pixels of the file, turned upright
    height: int
