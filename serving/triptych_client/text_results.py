"""What calls of the BERT family's services return. All of it is immutable."""

from dataclasses import dataclass

from triptych_client.results import Served


@dataclass(frozen=True, slots=True)
class ScoredLabel:
    """One of a model's labels."""

    label: str
    score: float
    """Probability, 0 to 1."""
    index: int
    """The label's number in the model."""


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """A token that may stand at a [MASK]."""

    score: float
    """Probability over the whole vocabulary."""
    token: int
    """The token's id."""
    token_str: str
    sequence: str
    """The text with this mask filled; other masks stay."""


@dataclass(frozen=True, slots=True)
class FilledMask:
    """What may stand at one [MASK]."""

    candidates: tuple[MaskCandidate, ...]
    """Best first."""


@dataclass(frozen=True, slots=True)
class FilledText(Served):
    """What may stand at the masks of one text."""

    masks: tuple[FilledMask, ...]
    """From left to right."""
    token_count: int
    """Tokens of the text, [CLS] and [SEP] included."""


@dataclass(frozen=True, slots=True)
class Embedding(Served):
    """One text as a vector."""

    values: tuple[float, ...]
    token_count: int
    """Tokens of the text, [CLS] and [SEP] included."""


@dataclass(frozen=True, slots=True)
class ClassifiedText(Served):
    """The labels of one text, or pair of texts."""

    labels: tuple[ScoredLabel, ...]
    """Best first."""
    token_count: int
    """Tokens of the input, [CLS] and [SEP] included."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled part of a text."""

    label: str
    """Without B- and I- where tokens are aggregated."""
    score: float
    """Probability, the mean of the tokens'."""
    text: str
    start: int
    """Where it begins in the text: `whole[entity.start:entity.end] == entity.text`."""
    end: int


@dataclass(frozen=True, slots=True)
class LabelledText(Served):
    """The entities of one text."""

    entities: tuple[Entity, ...]
    """From left to right."""
    token_count: int
    """Tokens of the text, [CLS] and [SEP] included."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A part of a context that answers a question."""

    text: str
    score: float
    """Probability of the answer's first token times that of its last."""
    start: int
    """Where it begins in the context: `context[answer.start:answer.end] == answer.text`."""
    end: int


@dataclass(frozen=True, slots=True)
class AnsweredQuestion(Served):
    """The answers to one question."""

    answers: tuple[Answer, ...]
    """Best first."""
    token_count: int
    """Tokens of question and context, [CLS] and [SEP] included."""
