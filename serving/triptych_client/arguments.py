"""The optional named arguments that several calls share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, TypedDict

from triptych.decoding import DecodingArguments, DecodingOptions
from triptych_client.files import ImageSource


class Pooling(StrEnum):
    """The method that combines the vectors of a text's tokens."""

    MEAN = "mean"
    """The mean over all tokens of the text, [CLS] and [SEP] included."""
    CLS = "cls"
    """The last hidden state of [CLS]."""


class Aggregation(StrEnum):
    """The method that combines labelled tokens to entities."""

    NONE = "none"
    """One entity per token, whatever its label."""
    SIMPLE = "simple"
    """Adjacent tokens with the same label form one entity; B- starts an entity, I- continues it, O is left out."""
    FIRST = "first"
    """As SIMPLE, but of whole words, which have the label of their first token."""
    AVERAGE = "average"
    """As SIMPLE, but of whole words, which have the likeliest label in the mean of their tokens."""
    MAX = "max"
    """As SIMPLE, but of whole words, which have the label of the token with the highest probability."""


class CallArguments(TypedDict, total=False):
    """The arguments of every call."""

    timeout_seconds: float | None
    """Deadline of the call, retries included; the client's `timeout_seconds` by default."""
    request_id: str | None
    """Sent as `x-request-id`, to find the call in the server's log; ASCII. A random one by default."""
    retries: int | None
    """How often the call is sent again if the server is unavailable or full; the client's `retries` by default."""


def check_names(method: str, arguments: Mapping[str, Any], known: Any) -> None:
    """Reject a named argument that the TypedDict `known` does not have. Raises TypeError, with the closest name."""
    if unknown := arguments.keys() - known.__optional_keys__:
        name = min(unknown)
        close = get_close_matches(name, known.__optional_keys__, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{hint}")


def collect_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Move decoding options that have arguments of their own into `options`, where they take precedence.

    Raises:
        TypeError: `options` is no DecodingOptions.
    """
    if not isinstance(given := arguments.get("options"), DecodingOptions | None):
        raise TypeError(f"options is a DecodingOptions, not {type(given).__name__}; or write the options as arguments")
    named = {name: value for name, value in arguments.items() if name in DecodingArguments.__optional_keys__}
    others = {name: value for name, value in arguments.items() if name not in named}
    return {**others, "options": replace(given or DecodingOptions(), **named)} if named else others


class ModelArguments(CallArguments, total=False):
    """The arguments of every call to a model."""

    model: str | None
    """Name of the model. Optional if only one model has the capability, or serves the language pair."""
    model_version: str | None
    """A number or a label such as "canary"; by default the stable version, or else the newest."""


class OptionsArguments(ModelArguments, DecodingArguments, total=False):
    """The arguments of calls that decode. Each decoding option is an argument, too, such as `beam_size`."""

    options: DecodingOptions | None
    """Decoding options; the model's defaults by default."""


class LanguageArguments(ModelArguments, total=False):
    """The model and the languages of a translation."""

    target_language: str | None
    """BCP 47 ("de", "de-DE") or FLORES-200 ("deu_Latn"). Optional if the model has one target language."""
    source_language: str | None
    """As `target_language`. Optional if the model has one source language."""


class TranslateArguments(LanguageArguments, OptionsArguments, total=False):
    """The arguments of every kind of translation."""


class TextsArguments(TranslateArguments, total=False):
    """The arguments of `translate` and `translate_many`.

    With HTML or a glossary, `num_hypotheses`, `target_prefix`, `return_scores`, `return_alignment` and `split_sentences` are
    errors.
    """

    mime_type: str
    """"text/plain" by default, or "text/html", whose tags stay around the words that come from those they enclosed."""
    glossary: Mapping[str, str] | Iterable[tuple[str, str]]
    """Terms with their required translations."""


class DocumentArguments(TranslateArguments, total=False):
    """The arguments of `translate_document`.

    The first of `format`, `mime_type` and `file_name` that is given determines the format; paths and most files have a name.
    `num_hypotheses`, `target_prefix`, `return_scores`, `return_alignment` and `split_sentences` are errors for documents.
    `timeout_seconds` is the longest time without progress: the whole translation may take longer.
    """

    format: str
    """Such as "markdown" or "docx"."""
    mime_type: str
    """Such as "text/html"."""
    file_name: str
    """Such as "report.docx"; only its suffix counts."""
    glossary: Mapping[str, str] | Iterable[tuple[str, str]]
    """Terms with their required translations."""
    keep: Sequence[str]
    """Words and phrases to leave untranslated."""
    encoding: str
    """Text formats: by default, a byte order mark or the document itself determines it, otherwise it is UTF-8."""
    columns: Sequence[str | int]
    """CSV, TSV: the columns to translate, as names from the header or numbers from 1."""
    header: bool | None
    """CSV, TSV: whether the first record has column names. By default it has if `columns` has names."""
    keys: Sequence[str]
    """JSON, YAML: dotted paths to translate, with `*` for one member and `**` for any depth; all by default."""
    skip_keys: Sequence[str]
    """JSON, YAML: dotted paths to leave untranslated."""
    wrapped: bool | None
    """Plain text: whether lines are wrapped at a width, so that paragraphs are translated as a whole. None detects it."""
    retranslate: bool
    """PO, XLIFF, .ts, .xcstrings: also translate messages that have a translation."""
    mark_fuzzy: bool
    """PO, XLIFF, .ts, .xcstrings: mark new translations for review."""


class ScoreArguments(LanguageArguments, total=False):
    """The arguments of `score_translations`."""


class TruncateArguments(ModelArguments, total=False):
    """The arguments of calls that can shorten texts."""

    truncate: bool
    """Cut off texts that are too long for the model, as `truncated` of the result then says; otherwise they are errors."""


class AttendArguments(LanguageArguments, total=False):
    """The arguments of `attend`."""

    target: str
    """Translation to attend from; the model's own by default."""
    text_pair: str
    """Second text, for models of the BERT family."""
    image: ImageSource
    """JPEG, PNG or WebP file instead of a text, for image classifiers."""


class FillMaskArguments(ModelArguments, total=False):
    """The arguments of `fill_mask` and `fill_mask_many`."""

    top_k: int | None
    """Candidates per mask, best first; 5 by default, at most 1,000, and no more than there are targets."""
    targets: Sequence[str]
    """Rank only these words, each one token of the model; the whole vocabulary by default."""


class EmbedArguments(TruncateArguments, total=False):
    """The arguments of `embed` and `embed_many`."""

    pooling: Pooling | Literal["mean", "cls"] | None
    """How the vectors of the tokens become one; as the model was trained by default, or "mean" if that is unknown."""
    normalize: bool | None
    """Scale each vector to length 1, so that a dot product is the cosine similarity; as the model was trained by default, or
    off if that is unknown."""
    dimensions: int | None
    """Values of each vector to return, the first ones; all by default."""
    token_vectors: bool
    """Also return the vector of each token, from models that have them; False by default."""
    prompt_name: str
    """Name of a prompt of the model that is put before every text, such as "query"; none by default."""


class ClassifyTextArguments(TruncateArguments, total=False):
    """The arguments of `classify_text` and `classify_text_many`."""

    top_k: int | None
    """Labels per input, best first; all by default."""
    raw_scores: bool
    """Return the model's logits instead of probabilities."""


class ClassifyTokensArguments(TruncateArguments, total=False):
    """The arguments of `classify_tokens` and `classify_tokens_many`."""

    aggregation: Aggregation | Literal["none", "simple", "first", "average", "max"]
    """How labelled tokens become entities; as the bundle says by default, else "simple"."""


class AnswerArguments(ModelArguments, total=False):
    """The arguments of `answer` and `answer_many`."""

    top_k: int | None
    """Answers per question, best first; 1 by default, at most 100."""
    max_answer_length: int | None
    """Longest answer, in tokens; 15 by default."""


class RerankArguments(TruncateArguments, total=False):
    """The arguments of `rerank`."""

    top_k: int | None
    """Documents to return, best first; all by default."""
    raw_scores: bool
    """Return the model's logits instead of their sigmoid, which is from 0 to 1."""


class NeighborsArguments(ModelArguments, total=False):
    """The arguments of `neighbors` and `neighbors_many`."""

    top_k: int | None
    """Neighbors of each query, best first; 10 by default, at most 1,000."""


class GenerateArguments(OptionsArguments, total=False):
    """The arguments of `generate`, `generate_many` and `generate_stream`.

    `coverage_penalty`, `target_prefix`, `return_alignment` and `split_sentences` do not apply.
    """

    max_tokens: int | None
    """Maximum number of generated tokens; by default the model's, as far as its context has room."""
    n: int | None
    """Choices for each prompt: samples, or hypotheses of a beam search; 1 by default."""
    stop: Sequence[str]
    """Texts that end the generation, and are not part of it; at most 16, each of 1 to 256 characters."""
    top_logprobs: int | None
    """Return the log-probability of each token, and as many of the likeliest tokens, 0 to 20; None returns nothing."""
    echo: bool
    """The text begins with the prompt."""
    json_schema: str | Mapping[str, Any]
    """A JSON schema, as text or as a dict: the text is JSON that is valid by it, or its beginning if `max_tokens` ends it."""
    regex: str
    """A regular expression, without look-around, that the whole text matches; not with `json_schema`."""
    template_variables: Mapping[str, bool | float | str]
    """Variables of the model's chat template, such as `{"enable_thinking": False}`; for chats alone."""
    tools: Sequence[Mapping[str, Any]]
    """Functions that the answer of a chat may call, with `name`, `description` and `parameters` (a JSON schema, text or dict);
    or as in OpenAI's API."""
    tool_choice: str
    """"auto", "none", "required", or the name of the function that the answer calls; "auto" by default."""
    logit_bias: Mapping[int, float]
    """Added to the logits of tokens, by token: at most 1,024 values of -100 to 100."""


class CompleteImageArguments(OptionsArguments, total=False):
    """The arguments of `complete_image`.

    Lengths, `coverage_penalty`, `suppress_sequences`, `target_prefix`, `return_alignment` and `split_sentences` do not apply.
    """

    n: int | None
    """Completions: samples, or hypotheses of a beam search; 1 by default."""
    rows: int | None
    """Rows of pixels to keep of the image, once it is scaled to the model's width. By default all, or half of the model's
    height if there are as many or more."""


class GenerateImagesArguments(ModelArguments, total=False):
    """The arguments of `generate_images`."""

    count: int | None
    """Number of images of random latents; 1 by default."""
    seed: int | None
    """The same seed gives the same images; a random one by default."""
    latents: Sequence[Sequence[float]]
    """The latents of each image, instead of `count` and `seed`."""


class InterpolateArguments(ModelArguments, total=False):
    """The arguments of `interpolate`."""

    steps: int | None
    """Number of images, with both ends, 2 or more; 8 by default."""


class ClassifyImageArguments(ModelArguments, total=False):
    """The arguments of `classify_image`, `classify_image_many` and `classify_images`."""

    top_k: int | None
    """Labels per image, best first; 5 by default, at most as many as the model has."""
