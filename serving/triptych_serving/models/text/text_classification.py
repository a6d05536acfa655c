"""Text classification: labels of whole texts, or of pairs of texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triptych_serving.bundle.manifest import TEXT_CLASSIFICATION, TextManifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import LOGITS, NEXT_SENTENCE, PROBABILITIES
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.labels import ScoredLabel, rank_labels
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_range, check_results
from triptych_serving.models.text.task import TextInput, TextParts, TextTask, check_logits, item_maker
from triptych_serving.text.validation import InputNames
from triptych_text.steps import Steps

NAMES = InputNames("inputs", ("text", "text_pair"))
NEXT_SENTENCE_LABELS = ("not_next", "next")


@dataclass(frozen=True, slots=True)
class ClassifiedText:
    """The labels of one input, best first."""

    labels: tuple[ScoredLabel, ...]
    token_count: int  # including [CLS] and [SEP]
    truncated: bool = False


def prepare_text_classification(
    model: TextParts,
    inputs: Sequence[TextInput],
    *,
    top_k: int | None = None,
    raw_scores: bool = False,
    truncate: bool = False,
) -> Steps[Work[ClassifiedText]]:
    """Check and tokenize texts or (text, text) pairs in small steps.

    A model with next-sentence prediction tells whether the second text of a pair follows the first.

    Args:
        inputs: order is kept.
        top_k: labels of each input; None: all.
        raw_scores: scores are logits, instead of probabilities; those of a regression always are.
        truncate: cut off the end of inputs that are too long, of a pair first that of the longer text.

    Raises:
        InvalidInputError: a text is empty or too long, the second text of a pair is missing or not accepted, `top_k` is out
            of range, or the labels would be too large.
        UnsupportedError: the graph has no logits, and raw scores are requested.
    """
    if top_k is not None:
        check_range("top_k", top_k, 1)
    raw = raw_scores or model.manifest.regression
    output = NEXT_SENTENCE if model.manifest.next_sentence else LOGITS if raw else PROBABILITIES
    if raw_scores:
        check_logits(model.manifest)
    labels = NEXT_SENTENCE_LABELS if model.manifest.next_sentence else model.manifest.labels
    k, width = min(top_k or len(labels), len(labels)), NUMBER_BYTES * len(labels)
    longest = max((len(label.encode()) for label in labels), default=0)
    what = f"{len(inputs):,} inputs x {k:,} labels"
    remedy = "send fewer inputs per request, or lower top_k"
    check_results("inputs", len(inputs) * max(width, k * (longest + ROW_BYTES)), what, model.limits, remedy)
    parts = [_parts(index, given, model.manifest) for index, given in enumerate(inputs)]
    most = model.limits.waiting_tokens
    items, truncated = yield from model.tokenizer.encode_or_truncate(
        parts, item_maker(output), NAMES, truncate=truncate, most=most
    )

    def read() -> Iterator[ClassifiedText]:
        for item, cut in zip(items, truncated, strict=True):
            yield ClassifiedText(rank_labels(item.result[output], labels, top_k), item.size, cut)

    return Work(items, read, 10 * len(labels) * len(items), "inputs")


def _takes_pairs(manifest: TextManifest) -> bool:
    return manifest.pairs or manifest.next_sentence


def _parts(index: int, given: TextInput, manifest: TextManifest) -> tuple[str, ...]:
    parts = (given,) if isinstance(given, str) else given
    if len(parts) == 1 and _takes_pairs(manifest) and not manifest.singles:
        raise InvalidInputError(NAMES.part(index, 1), "the second text is missing; the model takes pairs of texts")
    if len(parts) > 1 and not _takes_pairs(manifest):
        raise InvalidInputError(NAMES.part(index, 1), "the model takes single texts; leave the second text empty")
    return parts


def _example(model: TextParts, text: str) -> TextInput:
    return (text, text) if _takes_pairs(model.manifest) else text


TEXT_CLASSIFICATION_TASK = TextTask(TEXT_CLASSIFICATION, "classifies text", prepare_text_classification, _example, NAMES)
