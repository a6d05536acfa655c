"""Labels of a text's parts, such as names of people and places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import PROBABILITIES
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.results import Entity, LabelledText
from triptych_serving.models.text.task import make_items, trim
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertCodec
from triptych_serving.text.tokenizers import Encoding

NONE, SIMPLE = "none", "simple"
AGGREGATIONS = (NONE, SIMPLE)
OUTSIDE = "O"


@dataclass(frozen=True)
class _Part:
    """A labelled token."""

    label: str
    score: float
    start: int
    end: int


def prepare_classify_tokens(
    codec: BertCodec, labels: Sequence[str], texts: Sequence[str], aggregation: str
) -> Work[LabelledText]:
    """Check and tokenize. Aggregation is "simple" (adjacent tokens of one label are one entity) or "none" (one entity a token).

    Raises:
        InvalidInputError: a text is empty or too long, or the aggregation is unknown.
    """
    if aggregation not in AGGREGATIONS:
        raise InvalidInputError("aggregation", f"{aggregation!r} is unknown, it must be one of: {', '.join(AGGREGATIONS)}")
    encodings = codec.encode([(text,) for text in texts], offsets=True)
    items = make_items(encodings, (PROBABILITIES,))
    size = sum(map(len, texts))
    return Work(items, partial(_read, items, texts, encodings, labels, aggregation), size)


def _read(
    items: Sequence[Item], texts: Sequence[str], encodings: Sequence[Encoding], labels: Sequence[str], aggregation: str
) -> list[LabelledText]:
    results = []
    for item, text, encoding in zip(items, texts, encodings, strict=True):
        parts = _parts(encoding, item.result[PROBABILITIES], labels)
        groups = [[part] for part in parts] if aggregation == NONE else [g for g in _groups(parts) if not _is_blank(g, text)]
        entities = tuple(_entity(group, text, aggregation) for group in groups)
        results.append(LabelledText(entities, item.size))
    return results


def _parts(encoding: Encoding, probabilities: Array, labels: Sequence[str]) -> list[_Part]:
    """The tokens of the text itself."""
    best = np.argmax(probabilities, axis=1)
    scores = np.take_along_axis(probabilities, best[:, None], axis=1)[:, 0]
    tokens = zip(best.tolist(), scores.tolist(), encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [_Part(labels[label], score, *span) for label, score, span, special in tokens if not special]


def _groups(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Neighbours of one label; B- begins a new group, what is outside has none."""
    group: list[_Part] = list(parts[:1])
    for before, part in pairwise(parts):
        if part.label.startswith("B-") or _bare(part.label) != _bare(before.label):
            yield from _unless_outside(group)
            group = []
        group.append(part)
    yield from _unless_outside(group)


def _unless_outside(group: list[_Part]) -> Iterator[list[_Part]]:
    if group and group[0].label != OUTSIDE:
        yield group


def _is_blank(group: Sequence[_Part], text: str) -> bool:
    """Some tokenizers have tokens of white space alone."""
    return not text[group[0].start : group[-1].end].strip()


def _entity(group: Sequence[_Part], text: str, aggregation: str) -> Entity:
    label = group[0].label if aggregation == NONE else _bare(group[0].label)
    start, end = trim(text, group[0].start, group[-1].end)
    return Entity(label, sum(part.score for part in group) / len(group), text[start:end], start, end)


def _bare(label: str) -> str:
    """`B-PER` -> `PER`."""
    return label[2:] if label[:2] in ("B-", "I-") else label
