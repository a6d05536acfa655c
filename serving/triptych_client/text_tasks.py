"""The text tasks: the result and the call of each.

A new task is its result and one entry here, and a method in each of the two clients. Arguments of its own are a TypedDict in
`triptych_client.arguments`.
"""

from dataclasses import dataclass
from typing import TypeAlias

from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    neighbors_pb2,
    question_answering_pb2,
    rerank_pb2,
    text_classification_pb2,
    token_classification_pb2,
)
from triptych_client import arguments as named
from triptych_client.results import ScoredLabel, Served
from triptych_client.tasks import UnaryTask, is_pair, is_text, method_of

TextOrPair: TypeAlias = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """A token that may fill a mask."""

    score: float
    """Probability over the whole vocabulary."""
    token: int
    """Token ID."""
    token_str: str
    sequence: str
    """The text with this mask filled; other masks stay."""


@dataclass(frozen=True, slots=True)
class FilledMask:
    """The candidates for one mask."""

    candidates: tuple[MaskCandidate, ...]
    """Best first."""


@dataclass(frozen=True, slots=True)
class FilledText(Served):
    """The candidates for the masks of one text."""

    masks: tuple[FilledMask, ...]
    """From left to right."""
    token_count: int
    """Tokens of the text, [CLS] and [SEP] included."""


FILL_MASK = UnaryTask(
    *method_of(fill_mask_pb2, "FillMaskService", "FillMask"),
    name="fill_mask_many",
    arguments=named.FillMaskArguments,
    result=FilledText,
    copies="top_k",
)


@dataclass(frozen=True, slots=True)
class Embedding(Served):
    """The embedding vector of one text."""

    values: tuple[float, ...]
    token_count: int
    """Tokens of the text, [CLS] and [SEP] included."""
    truncated: bool = False
    """True if the end of the text was cut off; only with `truncate`."""
    token_values: tuple[float, ...] = ()
    """The vectors of the tokens one after another, each as long as `values`; only with `token_vectors`, as the next two."""
    token_starts: tuple[int, ...] = ()
    """Where each token starts in the text, in Unicode code points; start and end are 0 for [CLS] and [SEP]."""
    token_ends: tuple[int, ...] = ()
    """Where each token ends, exclusive."""


EMBED = UnaryTask(
    *method_of(embedding_pb2, "EmbeddingService", "EmbedText"),
    name="embed_many",
    arguments=named.EmbedArguments,
    result=Embedding,
    results="embeddings",
)


@dataclass(frozen=True, slots=True)
class ClassifiedText(Served):
    """The labels of one text, or pair of texts."""

    labels: tuple[ScoredLabel, ...]
    """Best first."""
    token_count: int
    """Tokens of the input, [CLS] and [SEP] included."""
    truncated: bool = False
    """True if the end of the text was cut off; only with `truncate`."""


def _text_input(each: TextOrPair) -> text_classification_pb2.TextInput:
    if isinstance(each, str):
        return text_classification_pb2.TextInput(text=each)
    text, text_pair = each
    # An empty second text would make it a single text; the server rejects a space.
    return text_classification_pb2.TextInput(text=text, text_pair=text_pair or " ")


CLASSIFY_TEXT = UnaryTask(
    *method_of(text_classification_pb2, "TextClassificationService", "ClassifyText"),
    name="classify_text_many",
    arguments=named.ClassifyTextArguments,
    result=ClassifiedText,
    inputs="inputs",
    takes="text or pair of texts",
    accepts=lambda each: is_text(each) or is_pair(each),
    to_message=_text_input,
)


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled span of a text."""

    label: str
    """Without B- and I- if tokens are aggregated."""
    score: float
    """Mean probability of the tokens."""
    text: str
    start: int
    """Position in the text: `whole[entity.start:entity.end] == entity.text`."""
    end: int


@dataclass(frozen=True, slots=True)
class LabelledText(Served):
    """The entities of one text."""

    entities: tuple[Entity, ...]
    """From left to right."""
    token_count: int
    """Tokens of the text, [CLS] and [SEP] included."""
    truncated: bool = False
    """True if the end of the text was cut off; only with `truncate`."""


CLASSIFY_TOKENS = UnaryTask(
    *method_of(token_classification_pb2, "TokenClassificationService", "ClassifyTokens"),
    name="classify_tokens_many",
    arguments=named.ClassifyTokensArguments,
    result=LabelledText,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of a context that answers a question."""

    text: str
    score: float
    """Probability of the first token times that of the last."""
    start: int
    """Position in the context: `context[answer.start:answer.end] == answer.text`."""
    end: int


@dataclass(frozen=True, slots=True)
class AnsweredQuestion(Served):
    """The answers to one question."""

    answers: tuple[Answer, ...]
    """Best first."""
    token_count: int
    """Tokens of question and context, [CLS] and [SEP] included."""


ANSWER = UnaryTask(
    *method_of(question_answering_pb2, "QuestionAnsweringService", "AnswerQuestion"),
    name="answer_many",
    arguments=named.AnswerArguments,
    result=AnsweredQuestion,
    inputs="inputs",
    takes="(question, context) pair",
    accepts=is_pair,
    to_message=lambda pair: question_answering_pb2.QuestionInput(question=pair[0], context=pair[1]),
)


@dataclass(frozen=True, slots=True)
class RankedDocument(Served):
    """A document with its relevance to a query."""

    index: int
    """Position among the documents of the request."""
    score: float
    """0 to 1, or the model's logit with `raw_scores`."""
    token_count: int
    """Tokens of query and document, [CLS] and [SEP] included."""
    truncated: bool = False
    """True if the end of a text was cut off; only with `truncate`."""


RERANK = UnaryTask(
    *method_of(rerank_pb2, "RerankService", "Rerank"),
    name="rerank",
    arguments=named.RerankArguments,
    result=RankedDocument,
    inputs="documents",
    takes="document",
)


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A word near a query."""

    score: float
    """Cosine similarity to the sum of the query's vectors, each scaled to length 1."""
    token: int
    """Token ID."""
    token_str: str


@dataclass(frozen=True, slots=True)
class NearestWords(Served):
    """The words near one query."""

    neighbors: tuple[Neighbor, ...]
    """Best first, without the words of the query."""
    token_count: int
    """Words of the query."""


NEIGHBORS = UnaryTask(
    *method_of(neighbors_pb2, "NeighborService", "FindNeighbors"),
    name="neighbors_many",
    arguments=named.NeighborsArguments,
    result=NearestWords,
    takes="query",
)
