"""What calls return. All of it is immutable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Self, TypeAlias, TypeVar, overload

Item = TypeVar("Item")

Span: TypeAlias = tuple[int, int]
"""[start, end) in Unicode code points, without white space around it."""


class FinishReason(StrEnum):
    """Why a translation ended."""

    STOP = "stop"
    """The model ended the sentence."""
    LENGTH = "length"
    """`max_length` or the model's own limit was reached in a sentence of the text, which is incomplete."""
    UNKNOWN = "unknown"
    """The server gave no reason, or one that this client does not know."""


class ModelState(StrEnum):
    """Whether a model can be used."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"
    """It did not load; `state_message` says why."""
    UNLOADED = "unloaded"
    """It is in the repository, not in memory."""
    UNKNOWN = "unknown"
    """The server gave no state, or one that this client does not know."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a call went, measured on the server, in seconds."""

    queue_seconds: float = 0.0
    """Waiting for a place in the engine."""
    preprocess_seconds: float = 0.0
    """Turning text or images into tensors."""
    inference_seconds: float = 0.0
    """From the first computation to the last."""
    postprocess_seconds: float = 0.0
    """Turning tensors back into text or labels."""
    time_to_first_token_seconds: float = 0.0
    """From the call's arrival to its first decoded token; translation only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What every result tells about the call that it came from."""

    model: str
    model_version: str
    timing: Timing
    """Of the whole call, which may have had other inputs too."""
    request_id: str
    """What the call sent as `x-request-id`."""


@dataclass(frozen=True, slots=True)
class Results(Sequence[Item], Generic[Item]):
    """The results of many inputs, in the inputs' order; a sequence."""

    items: tuple[Item, ...]
    timings: tuple[Timing, ...]
    """One for each call to the server: a long list of inputs is sent in several."""
    request_id: str
    """What every one of these calls sent as `x-request-id`."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self.items[index]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation of a text."""

    text: str
    score: float | None
    """Log-probability / length^length_penalty, plus the coverage penalty; the sum over the text's sentences. None unless
    `return_scores` asked for it."""
    finish_reason: FinishReason
    token_count: int
    """Tokens of the text, the ends of its sentences not included."""
    alignment: tuple[tuple[float, ...], ...] = ()
    """For each target token its attention over the text's source tokens, 0 outside of its own sentence; empty unless
    `return_alignment` asked for it."""
    spans: tuple[Span, ...] = ()
    """Where each target token stands in `text`; only with an alignment."""

    @property
    def truncated(self) -> bool:
        """Whether the text was cut off at a length limit."""
        return self.finish_reason is FinishReason.LENGTH


@dataclass(frozen=True, slots=True)
class Translation(Served):
    """The translation of one text."""

    text: str
    """The best hypothesis' text."""
    hypotheses: tuple[Hypothesis, ...]
    """Best first; at least one."""
    source_token_count: int
    """Tokens of the source, the ends of its sentences included."""
    source_spans: tuple[Span, ...] = ()
    """Where each of them stands in the source, the ends of its sentences empty; only with an alignment."""

    @property
    def finish_reason(self) -> FinishReason:
        """Why the best hypothesis ended."""
        return self.hypotheses[0].finish_reason

    @property
    def truncated(self) -> bool:
        """Whether the best hypothesis was cut off at a length limit."""
        return self.hypotheses[0].truncated


@dataclass(frozen=True, slots=True)
class TranslationScore(Served):
    """How likely a model finds a translation. Natural logarithms."""

    log_probability: float
    """Of the whole translation, the end of the sentence included."""
    token_log_probabilities: tuple[float, ...]
    """One for each token of the translation, the end of the sentence included."""


@dataclass(frozen=True, slots=True)
class Translations(Results[Translation]):
    """The translations of many texts, in the texts' order; a sequence of Translation."""

    @classmethod
    def of(cls, results: Results[Translation]) -> Self:
        """The same, with what only translations have."""
        return cls(results.items, results.timings, results.request_id)

    @property
    def translations(self) -> tuple[Translation, ...]:
        """All of them."""
        return self.items

    @property
    def texts(self) -> list[str]:
        """The best hypothesis' text of each translation."""
        return [translation.text for translation in self.items]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the server knows."""

    name: str
    version: str
    task: str
    """ "translation", "fill-mask", "text-classification", "token-classification", "question-answering" or
    "image-classification"."""
    state: ModelState
    state_message: str
    precision: str
    """What runs, such as "int8"."""
    available_precisions: tuple[str, ...]
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_source_tokens: int
    """Longest input, the end of the sentence (BERT: [CLS] and [SEP]) included; 0 where the model takes no text."""
    max_target_tokens: int
    """Longest output, the end of the sentence included; 0 where the model gives no text."""
    labels: tuple[str, ...] = ()
    """What it tells apart, where it classifies."""
    services: tuple[str, ...] = ()
    """The services that can be asked for it, such as "triptych.v1.FillMaskService"."""
    version_labels: tuple[str, ...] = ()
    """What the version is called: requests may name "stable" instead of its number."""
    default_version: bool = False
    """Whether requests that name no version get this one."""
    devices: tuple[str, ...] = ()
    """Where it runs: "cpu", or the GPUs, such as "cuda:0"; empty while it is not loaded, and of servers that do not say."""
