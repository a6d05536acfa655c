"""Token classification: labels of parts of a text, such as names of people and places."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from triptych_serving.bundle.manifest import AGGREGATIONS, TOKEN_CLASSIFICATION
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import PROBABILITIES
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_results
from triptych_serving.models.text.task import TextParts, TextTask, continued, make_item, trim
from triptych_serving.runtime.session import Array
from triptych_serving.text.tokenizers import KeptEncoding
from triptych_text.entities import entity_prefixes, find_entities
from triptych_text.steps import Steps

# Probabilities of a word `[labels]` from those of its tokens `[tokens, labels]`, as in transformers' pipeline.
OF_WORDS: Mapping[str, Callable[[Array], Array]] = {
    "first": lambda tokens: tokens[0],
    "average": lambda tokens: tokens.mean(axis=0),
    "max": lambda tokens: tokens[tokens.max(axis=1).argmax()],
}


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled part of a text."""

    label: str
    score: float  # mean probability of its tokens, or of its words
    text: str
    start: int  # Unicode code points from the start of the text
    end: int  # exclusive


@dataclass(frozen=True, slots=True)
class LabelledText:
    """The entities of one text, from left to right."""

    entities: tuple[Entity, ...]
    token_count: int  # including [CLS] and [SEP]
    truncated: bool = False


@dataclass(frozen=True)
class _Labelled:
    """A token, or a word, with its likeliest label."""

    label: str
    score: float
    start: int
    end: int
    inner: bool  # continues the word of the token before


def prepare_token_classification(
    model: TextParts,
    texts: Sequence[str],
    *,
    aggregation: str | None = None,
    truncate: bool = False,
) -> Steps[Work[LabelledText]]:
    """Check and tokenize texts in small steps, in which "[MASK]" is ordinary text.

    Args:
        texts: order is kept.
        aggregation: "simple" joins adjacent tokens of one label to an entity; "none" returns each token; "first", "average" and
            "max" label whole words before they join them: by their first token, by the mean of their tokens' probabilities, or
            by the token with the highest one. None: the manifest's.
        truncate: cut off the end of texts that are too long.

    Raises:
        InvalidInputError: a text is empty or too long, the aggregation is unknown, or the results would be too large.
    """
    aggregation = model.manifest.aggregation if aggregation is None else aggregation
    if aggregation not in AGGREGATIONS:
        raise InvalidInputError("aggregation", f"{aggregation!r} is unknown, it must be one of: {', '.join(AGGREGATIONS)}")
    inputs, most = [(text,) for text in texts], model.limits.waiting_tokens
    encodings, truncated = yield from model.tokenizer.encode_or_truncate(
        inputs, KeptEncoding, truncate=truncate, offsets=True, most=most
    )
    tokens, labels = sum(map(len, encodings)), model.manifest.labels
    # A token has a probability of each label, and may be an entity of its own.
    entity = max((len(label.encode()) for label in labels), default=0) + 2 * ROW_BYTES
    size = tokens * max(NUMBER_BYTES * len(labels), entity)
    check_results("contents", size, f"{tokens:,} tokens x {len(labels):,} labels", model.limits, "send fewer texts per request")
    items = [make_item(encoding, (PROBABILITIES,)) for encoding in encodings]

    def read() -> Iterator[LabelledText]:
        prefixes = entity_prefixes(labels)
        for item, cut, text, encoding in zip(items, truncated, texts, encodings, strict=True):
            by_space = aggregation in OF_WORDS and not model.tokenizer.prefix
            inner = continued(text, encoding, by_space, model.tokenizer.space)
            found = _labelled(encoding, item.result[PROBABILITIES], labels, inner, OF_WORDS.get(aggregation))
            if aggregation == "none":
                entities = [_entity(token.label, [token], text) for token in found]
            else:
                entities = _joined(found, prefixes, text)
            yield LabelledText(tuple(entities), item.size, cut)

    return Work(items, read, sum(map(len, texts)))


def _labelled(
    encoding: KeptEncoding,
    probabilities: Array,
    labels: Sequence[str],
    inner: Sequence[bool],
    combine: Callable[[Array], Array] | None,
) -> list[_Labelled]:
    """Label the tokens of the text itself, without [CLS] and [SEP], or with `combine` its words.

    `probabilities` are `[tokens, labels]`.
    """
    tokens = [index for index, special in enumerate(encoding.special_tokens_mask) if not special]
    firsts = [place for place, index in enumerate(tokens) if combine is None or place == 0 or not inner[index]]
    groups = [tokens[first:end] for first, end in pairwise([*firsts, len(tokens)])]
    if combine is None:
        rows = probabilities[tokens]
    else:
        rows = np.array([combine(probabilities[group]) for group in groups]).reshape(len(groups), len(labels))
    found = zip(groups, rows.argmax(axis=1).tolist(), rows.max(axis=1).tolist(), strict=True)
    offsets = encoding.offsets
    return [
        _Labelled(labels[label], score, offsets[group[0]][0], offsets[group[-1]][1], combine is None and inner[group[0]])
        for group, label, score in found
    ]


def _joined(tokens: Sequence[_Labelled], prefixes: str, text: str) -> list[Entity]:
    """Join adjacent tokens of one label; entities of white space alone, which some tokenizers have tokens for, are left out."""
    spans = find_entities([token.label for token in tokens], prefixes, [token.inner for token in tokens])
    groups = [(name, tokens[first : last + 1]) for name, first, last in spans]
    return [_entity(name, group, text) for name, group in groups if text[group[0].start : group[-1].end].strip()]


def _entity(label: str, group: Sequence[_Labelled], text: str) -> Entity:
    start, end = trim(text, group[0].start, group[-1].end)
    return Entity(label, sum(token.score for token in group) / len(group), text[start:end], start, end)


TOKEN_CLASSIFICATION_TASK = TextTask(TOKEN_CLASSIFICATION, "labels tokens", prepare_token_classification)
