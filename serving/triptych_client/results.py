"""What calls return. All of it is immutable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import overload


class FinishReason(StrEnum):
    """Why a translation ended."""

    STOP = "stop"
    """The model ended the sentence."""
    LENGTH = "length"
    """`max_length` or the model's own limit was reached: the text is incomplete."""
    UNKNOWN = "unknown"
    """The server gave no reason, or one that this client does not know."""


class ModelState(StrEnum):
    """Whether a model can be used."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"
    """It did not load; `state_message` says why."""
    UNKNOWN = "unknown"
    """The server gave no state, or one that this client does not know."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a call went, measured on the server, in seconds."""

    queue_seconds: float = 0.0
    """Waiting for a place in the engine."""
    preprocess_seconds: float = 0.0
    """Turning text into tensors."""
    inference_seconds: float = 0.0
    """From the first computation to the last."""
    postprocess_seconds: float = 0.0
    """Turning tensors back into text."""
    time_to_first_token_seconds: float = 0.0
    """From the call's arrival to its first decoded token."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation of a text."""

    text: str
    score: float | None
    """Log-probability / length^length_penalty; None unless `return_scores` asked for it."""
    finish_reason: FinishReason
    token_count: int
    """Tokens of the text, the end of the sentence not included."""
    alignment: tuple[tuple[float, ...], ...] = ()
    """For each target token its attention over the source tokens; empty unless `return_alignment` asked for it."""

    @property
    def truncated(self) -> bool:
        """Whether the text was cut off at a length limit."""
        return self.finish_reason is FinishReason.LENGTH


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text."""

    text: str
    """The best hypothesis' text."""
    hypotheses: tuple[Hypothesis, ...]
    """Best first; at least one."""
    source_token_count: int
    """Tokens of the source, the end of the sentence included."""
    model: str
    model_version: str
    timing: Timing
    """Of the whole call, which may have had other texts too."""
    request_id: str
    """What the call sent as `x-request-id`."""

    @property
    def finish_reason(self) -> FinishReason:
        """Why the best hypothesis ended."""
        return self.hypotheses[0].finish_reason

    @property
    def truncated(self) -> bool:
        """Whether the best hypothesis was cut off at a length limit."""
        return self.hypotheses[0].truncated


@dataclass(frozen=True, slots=True)
class Translations(Sequence[Translation]):
    """The translations of many texts, in the texts' order; a sequence of Translation."""

    translations: tuple[Translation, ...]
    timings: tuple[Timing, ...]
    """One for each call to the server: a long list of texts is sent in several."""
    request_id: str
    """What every one of these calls sent as `x-request-id`."""

    @property
    def texts(self) -> list[str]:
        """The best hypothesis' text of each translation."""
        return [translation.text for translation in self.translations]

    def __len__(self) -> int:
        return len(self.translations)

    def __iter__(self) -> Iterator[Translation]:
        return iter(self.translations)

    @overload
    def __getitem__(self, index: int) -> Translation: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Translation, ...]: ...

    def __getitem__(self, index: int | slice) -> Translation | tuple[Translation, ...]:
        return self.translations[index]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that the server knows."""

    name: str
    version: str
    task: str
    """ "translation", "fill-mask" or "image-classification"."""
    state: ModelState
    state_message: str
    precision: str
    """What runs, such as "int8"."""
    available_precisions: tuple[str, ...]
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_source_tokens: int
    """Longest input, the end of the sentence included."""
    max_target_tokens: int
    """Longest output, the end of the sentence included."""
