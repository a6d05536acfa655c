"""Labels of whole texts, or of pairs of texts."""

from collections.abc import Sequence
from functools import partial

from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import NEXT_SENTENCE, PROBABILITIES
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.results import ClassifiedText
from triptych_serving.models.text.task import check_range, make_items, rank_labels
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertCodec
from triptych_serving.text.validation import Names

TextOrPair = str | tuple[str, str]

NAMES = Names("inputs", ("text", "text_pair"))
NEXT_SENTENCE_LABELS = ("not_next", "next")


def prepare_classify(
    codec: BertCodec, manifest: TextManifest, inputs: Sequence[TextOrPair], top_k: int | None
) -> Work[ClassifiedText]:
    """Check and tokenize. A model with next-sentence prediction says whether the second text of a pair follows the first.

    Raises:
        InvalidInputError: a text is empty or too long, a pair is missing or not wanted, or `top_k` is out of range.
    """
    if top_k is not None:
        check_range("top_k", top_k, 1)
    output = NEXT_SENTENCE if manifest.next_sentence else PROBABILITIES
    labels = NEXT_SENTENCE_LABELS if manifest.next_sentence else manifest.labels
    pairs = manifest.pairs or manifest.next_sentence
    singles = manifest.singles or not pairs
    parts = [_parts(index, given, pairs, singles) for index, given in enumerate(inputs)]
    items = make_items(codec.encode(parts, NAMES), (output,))
    size = 10 * len(labels) * len(items)
    return Work(items, partial(_read, items, output, labels, top_k), size, "inputs")


def _parts(index: int, given: TextOrPair, pairs: bool, singles: bool) -> tuple[str, ...]:
    parts = (given,) if isinstance(given, str) else given
    if not singles and len(parts) == 1:
        raise InvalidInputError(NAMES.part(index, 1), "there is none, the model takes pairs of texts")
    if not pairs and len(parts) > 1:
        raise InvalidInputError(NAMES.part(index, 1), "the model takes single texts, leave it empty")
    return parts


def _read(items: Sequence[Item], output: str, labels: Sequence[str], top_k: int | None) -> list[ClassifiedText]:
    return [ClassifiedText(rank_labels(item.result[output], labels, top_k), item.size) for item in items]
