"""The named arguments that several calls share, with their meaning. All may be left out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from triptych_client.options import Aggregation, DecodingOptions, Pooling


class CallArguments(TypedDict, total=False):
    """The arguments of every call."""

    timeout_seconds: float | None
    """How long the call may take, its retries included; the client's `timeout_seconds` by default."""
    request_id: str | None
    """Sent as `x-request-id`, to find the call in the server's log; ASCII. A random one by default."""


class LanguageArguments(TypedDict, total=False):
    """What to translate into, and with which model."""

    target_language: str | None
    """BCP 47 ("de", "de-DE") or FLORES-200 ("deu_Latn"). May be left out where the model has one target language."""
    source_language: str | None
    """As `target_language`. May be left out where the model has one source language."""
    model: str | None
    """The model's name. May be left out where one model serves the pair of languages."""
    model_version: str | None
    """The newest by default."""


class TranslateArguments(CallArguments, LanguageArguments, total=False):
    """The arguments of every kind of translation."""

    options: DecodingOptions | None
    """How to decode; the model's defaults by default."""


class DocumentArguments(TranslateArguments, total=False):
    """The arguments of `translate_document`.

    Of `format`, `mime_type` and `file_name` the first that is given says what the document is; a path and most files have their
    own name. Of `options` a document has no use for `num_hypotheses`, `target_prefix`, `return_scores`, `return_alignment` and
    `split_sentences`. `timeout_seconds` is how long the translation may stand still: it may take as long as it gets on.
    """

    format: str
    """Such as "markdown" or "docx"."""
    mime_type: str
    """Such as "text/html"."""
    file_name: str
    """Such as "report.docx"; its suffix counts."""
    glossary: Mapping[str, str] | Iterable[tuple[str, str]]
    """What terms must become."""
    keep: Sequence[str]
    """Words and phrases that must stay as they are."""
    encoding: str
    """Of text formats; by default a byte order mark says, or the document itself, else it is UTF-8."""
    columns: Sequence[str | int]
    """CSV, TSV: the columns to translate, by the header's names or by numbers from 1."""
    header: bool | None
    """CSV, TSV: the first record has names. None finds out."""
    keys: Sequence[str]
    """JSON, YAML: dotted paths of what is translated, with `*` for one member and `**` for any depth; all by default."""
    skip_keys: Sequence[str]
    """JSON, YAML: likewise, of what is not."""
    wrapped: bool | None
    """Plain text: lines are broken at a width, so that a paragraph is translated as a whole. None finds out."""
    retranslate: bool
    """PO, XLIFF: translate what has a translation already, too."""
    mark_fuzzy: bool
    """PO, XLIFF: mark what was translated as to be reviewed."""


class ScoreArguments(CallArguments, LanguageArguments, total=False):
    """The arguments of `score_translations`."""


class ModelArguments(CallArguments, total=False):
    """The arguments of every call to the encoder models' services."""

    model: str | None
    """The model's name. May be left out where one model can do it."""
    model_version: str | None
    """The newest by default."""


class FillMaskArguments(ModelArguments, total=False):
    """The arguments of `fill_mask` and `fill_mask_many`."""

    top_k: int | None
    """Candidates of each mask, best first; 5 by default, at most 1,000, and no more than there are targets."""
    targets: Sequence[str]
    """Rank these words alone, each one token of the model; without, the whole vocabulary."""


class EmbedArguments(ModelArguments, total=False):
    """The arguments of `embed` and `embed_many`."""

    pooling: Pooling | Literal["mean", "cls"] | None
    """How the tokens' vectors become one; as the model was trained by default, which is "mean" where nobody says."""
    normalize: bool | None
    """Scale each vector to length 1, so that a dot product is the cosine similarity; as `pooling`, else off."""


class ClassifyTextArguments(ModelArguments, total=False):
    """The arguments of `classify_text` and `classify_text_many`."""

    top_k: int | None
    """Labels of each input, best first; all by default."""


class ClassifyTokensArguments(ModelArguments, total=False):
    """The arguments of `classify_tokens` and `classify_tokens_many`."""

    aggregation: Aggregation | Literal["none", "simple"]
    """How labelled tokens become entities; "simple" by default."""


class AnswerArguments(ModelArguments, total=False):
    """The arguments of `answer` and `answer_many`."""

    top_k: int | None
    """Answers to each question, best first; 1 by default, at most 100."""
    max_answer_length: int | None
    """Longest answer, in tokens; 15 by default."""


class ClassifyImageArguments(ModelArguments, total=False):
    """The arguments of `classify_image`, `classify_image_many` and `classify_images`."""

    top_k: int | None
    """Labels of each image, best first; 5 by default. More than the model has: all."""
