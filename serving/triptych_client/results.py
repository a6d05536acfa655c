"""The immutable results of all calls but text tasks, whose results are in `triptych_client.text_tasks`.

Where a field has the name of a field of the wire's message, `triptych_client.messages` fills it without further code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

from triptych_client.errors import TriptychClientError

Item = TypeVar("Item")

Span: TypeAlias = tuple[int, int]
"""[start, end) in Unicode code points, without surrounding white space."""


class FinishReason(StrEnum):
    """Why decoding stopped."""

    STOP = "stop"
    """The model ended the sentence."""
    LENGTH = "length"
    """A sentence reached `max_length` or the model's own limit: the translation is incomplete."""
    UNKNOWN = "unknown"
    """The server gave no reason, or one that this client does not know."""


class ModelState(StrEnum):
    """The life cycle of a model on the server."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"
    """Loading failed; `state_message` gives the reason."""
    UNLOADED = "unloaded"
    """In the repository, not in memory."""
    UNKNOWN = "unknown"
    """The server gave no state, or one that this client does not know."""


class FindingKind(StrEnum):
    """The kind of a finding in a translated document."""

    PLACEHOLDER = "placeholder"
    """A placeholder, URL, number or e-mail address was lost."""
    TAG = "tag"
    """Inline markup could not be placed by alignment."""
    GLOSSARY = "glossary"
    """A term is not translated as the glossary says."""
    TRUNCATED = "truncated"
    """The translation reached its length limit."""
    REFUSED = "refused"
    """The model rejected the text."""
    NORMALIZED = "normalized"
    """The source was not in Unicode normalization form NFC."""
    LENGTH = "length"
    """The translation is longer than the document allows at this place."""
    FORMAT = "format"
    """The document itself is faulty."""
    UNKNOWN = "unknown"
    """A kind that this client does not know."""


class Severity(StrEnum):
    """The severity of a finding."""

    NOTE = "note"
    """No action needed."""
    WARNING = "warning"
    """Needs a review."""
    ERROR = "error"
    """The source text was left untranslated."""
    UNKNOWN = "unknown"
    """A severity that this client does not know."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds spent on the server in each stage of a call."""

    queue_seconds: float = 0.0
    """Waiting in the queue of the engine."""
    preprocess_seconds: float = 0.0
    """Turning text or images into tensors."""
    inference_seconds: float = 0.0
    """From the first computation to the last."""
    postprocess_seconds: float = 0.0
    """Turning tensors into text or labels."""
    time_to_first_token_seconds: float = 0.0
    """From the call's arrival to its first decoded token; translations and generated texts only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The fields that every result has: model, timing and request ID."""

    model: str
    model_version: str
    timing: Timing
    """Of the whole call, which may have had other inputs too."""
    request_id: str
    """Value of the `x-request-id` that the call sent."""


@dataclass(frozen=True, slots=True)
class Results(Sequence[Item], Generic[Item]):
    """A sequence of results, in the order of the inputs. To take the result of an invalid input raises its error.

    for number, outcome in enumerate(results.outcomes):
        print(number, "failed" if isinstance(outcome, TriptychClientError) else outcome)
    """

    outcomes: tuple[Item | TriptychClientError, ...]
    """The result or the error of each input; indexing and iteration raise the errors."""
    timings: tuple[Timing, ...]
    """One for each request to the server: a long list of inputs is sent as several requests."""
    request_id: str
    """Value of the `x-request-id` that all of these requests sent."""

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Item]:
        return map(_result, self.outcomes)

    @property
    def items(self) -> tuple[Item, ...]:
        """The results as a tuple. Raises TriptychClientError: the first error, if there is one."""
        return tuple(self)

    @property
    def errors(self) -> dict[int, TriptychClientError]:
        """The errors of invalid inputs, by index."""
        return {index: each for index, each in enumerate(self.outcomes) if isinstance(each, TriptychClientError)}

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(map(_result, self.outcomes[index]))
        return _result(self.outcomes[index])


def _result(outcome: Item | TriptychClientError) -> Item:
    if isinstance(outcome, TriptychClientError):
        raise outcome
    return outcome


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation of a text."""

    text: str
    score: float | None
    """Log-probability / length^length_penalty, plus the coverage penalty, summed over the sentences of the text. None unless
    requested with `return_scores`."""
    finish_reason: FinishReason
    token_count: int
    """Tokens of the text, without the end-of-sentence tokens."""
    alignment: tuple[tuple[float, ...], ...] = ()
    """[target tokens][source tokens]: attention weights, 0 outside of the token's own sentence. Empty unless requested with
    `return_alignment`."""
    spans: tuple[Span, ...] = ()
    """Position of each target token in `text`; only with an alignment."""

    @property
    def truncated(self) -> bool:
        """True if a length limit cut the text off."""
        return self.finish_reason is FinishReason.LENGTH


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """A problem at one place of a translated document or text."""

    kind: FindingKind
    severity: Severity
    where: str
    """Readable position: "line 12", "cue 7", "messages.title"."""
    message: str


@dataclass(frozen=True, slots=True)
class Translation(Served):
    """The translation of one text."""

    text: str
    """Text of the best hypothesis."""
    hypotheses: tuple[Hypothesis, ...]
    """Best first; at least one."""
    source_token_count: int
    """Tokens of the source, end-of-sentence tokens included."""
    source_spans: tuple[Span, ...] = ()
    """Position of each source token in the source, empty for end-of-sentence tokens; only with an alignment."""
    findings: tuple[DocumentFinding, ...] = ()
    """With HTML or a glossary: what the checks found, such as a term that is not translated as required."""

    @property
    def finish_reason(self) -> FinishReason:
        """Why decoding of the best hypothesis stopped."""
        return self.hypotheses[0].finish_reason

    @property
    def truncated(self) -> bool:
        """True if a length limit cut the best hypothesis off."""
        return self.hypotheses[0].truncated


@dataclass(frozen=True, slots=True)
class TranslationScore(Served):
    """The likelihood of a given translation under a model. Natural logarithms."""

    log_probability: float
    """Sum over the tokens of the translation, end-of-sentence included."""
    token_log_probabilities: tuple[float, ...]
    """One for each token of the translation, end-of-sentence included."""


@dataclass(frozen=True, slots=True)
class Translations(Results[Translation]):
    """A sequence of translations, in the order of the texts."""

    @classmethod
    def of(cls, results: Results[Translation]) -> Self:
        """Convert from general results."""
        return cls(results.outcomes, results.timings, results.request_id)

    @property
    def translations(self) -> tuple[Translation, ...]:
        """The translations as a tuple."""
        return self.items

    @property
    def texts(self) -> list[str]:
        """The text of the best hypothesis of each translation."""
        return [translation.text for translation in self.items]


@dataclass(frozen=True, slots=True)
class DocumentProgress:
    """The progress of a document's translation."""

    segments_done: int
    """Translated paragraphs, cells or messages."""
    segments: int
    """Total number; 0 while the document is being read."""


@dataclass(frozen=True, slots=True)
class TranslatedDocument(Served):
    """A translated document."""

    content: bytes
    """The document, in its original format."""
    findings: tuple[DocumentFinding, ...]
    """Problems at single places; often none."""
    format: str
    """Detected format, such as "docx"."""
    mime_type: str
    segments: int
    """Number of paragraphs, cells or messages."""
    sentences: int
    """Number of sentences in all segments; equal ones are translated once."""


@dataclass(frozen=True, slots=True)
class ScoredLabel:
    """A label with its probability."""

    label: str
    score: float
    """Probability, 0 to 1."""
    index: int
    """Index of the label in the model."""


@dataclass(frozen=True, slots=True)
class CompletedImage:
    """One completion of an image."""

    image: bytes
    """PNG file."""
    score: float | None
    """Only with `return_scores`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCompletion(Served):
    """The completions of one image."""

    images: tuple[CompletedImage, ...]
    """As many as `n`; hypotheses of a beam search best first."""
    rows: int
    """Number of rows of pixels that were kept."""

    @property
    def image(self) -> bytes:
        """The first completion, a PNG file."""
        return self.images[0].image


@dataclass(frozen=True, slots=True)
class GeneratedImage:
    """One generated image."""

    image: bytes
    """PNG file."""
    latents: tuple[float, ...]
    """The numbers that it was decoded from."""


@dataclass(frozen=True, slots=True)
class GeneratedImages:
    """The images of one call, in order."""

    images: tuple[GeneratedImage, ...]
    model: str
    model_version: str
    timing: Timing


@dataclass(frozen=True, slots=True)
class ClassifiedImage(Served):
    """The labels of one image."""

    labels: tuple[ScoredLabel, ...]
    """Best first."""
    width: int
    """Pixels of the original image, turned upright."""
    height: int


@dataclass(frozen=True, slots=True)
class ImageOutcome:
    """The outcome for one image of a stream: either `result` or `error`."""

    index: int
    """Position of the image in the input, from 0."""
    result: ClassifiedImage | None = None
    error: Exception | None = None
    """TriptychClientError: the server rejected the image. OSError: the file could not be read. TypeError: the source is not
    bytes, a path or a binary file."""

    def get(self) -> ClassifiedImage:
        """Return the result. Raises `error` if there is none."""
        if self.result is None:
            raise self.error or RuntimeError(f"image {self.index} has neither result nor error")
        return self.result


@dataclass(frozen=True, slots=True)
class AttentionToken:
    """A token of a text, or of its translation."""

    text: str
    start: int
    """Span [start, end) in `text`, `text_pair` or `target`; empty for special tokens."""
    end: int
    in_pair: bool
    """The token is of `text_pair`."""


@dataclass(frozen=True, slots=True)
class AlignmentHeads:
    """The heads of a model's cross-attention whose mean is its alignment."""

    layer: int
    heads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of one text or image.

    The weights are a view of floats with four dimensions, [layers, heads, targets, sources], such as numpy.asarray takes;
    `encoder[0, 1, 2, 3]` is one of them, `encoder.tolist()` are nested lists.
    """

    encoder: memoryview
    """Of the input to itself."""
    decoder: memoryview | None
    """Translation: of the target to its beginning. Source i is the decoder's start for 0, and otherwise target i - 1."""
    cross: memoryview | None
    """Translation: of the target to the source."""
    source_tokens: tuple[AttentionToken, ...]
    target_tokens: tuple[AttentionToken, ...]
    target: str
    """The given translation, or the model's own."""
    patch_rows: int
    """Images: the patches are the last positions, row by row."""
    patch_columns: int
    crop_width: float
    """Images: share of the upright image's width that the patches cover, in its middle."""
    crop_height: float
    alignment: AlignmentHeads | None
    """Translation: the part of `cross` that is the model's alignment."""
    model: str
    model_version: str
    timing: Timing

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, field.name) for field in fields(self)]  # bytes and shape of a view, which has no pickle
        return _attention_of, tuple((each.tobytes(), each.shape) if isinstance(each, memoryview) else each for each in values)


def _attention_of(*values: Any) -> Attention:
    weights: Any = (each and weights_view(*each) for each in values[:3])
    return Attention(*weights, *values[3:])


def weights_view(content: Any, shape: tuple[int, ...]) -> memoryview:
    """Return a view of native float32 values with this shape."""
    return memoryview(content).cast("B").cast("f", shape)  # type: ignore[return-value]


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
    """Precision in use, such as "int8"."""
    available_precisions: tuple[str, ...]
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_source_tokens: int
    """Longest input, end-of-sentence (BERT: [CLS] and [SEP]) included; 0 if the model takes no text."""
    max_target_tokens: int
    """Longest output, end-of-sentence included; 0 if the model generates no text."""
    labels: tuple[str, ...] = ()
    """Class names of a classifier."""
    services: tuple[str, ...] = ()
    """Services that the model supports, such as "triptych.v1.FillMaskService"."""
    version_labels: tuple[str, ...] = ()
    """Labels of the version: requests may name "stable" instead of its number."""
    default_version: bool = False
    """True if requests without a version get this one."""
    devices: tuple[str, ...] = ()
    """Devices in use: "cpu", or GPUs such as "cuda:0"; empty while it is not loaded, and from servers that do not report it."""
