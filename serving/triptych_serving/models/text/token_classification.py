"""Token classification: labels of parts of a text, such as names of people and places."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from triptych_serving.bundle.manifest import TOKEN_CLASSIFICATION
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import PROBABILITIES
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_results
from triptych_serving.models.text.task import TextParts, TextTask, make_item, trim
from triptych_serving.runtime.session import Array
from triptych_serving.text.tokenizers import KeptEncoding
from triptych_text.entities import entity_prefixes, find_entities
from triptych_text.sentences import is_unspaced
from triptych_text.steps import Steps

NONE, SIMPLE = "none", "simple"
AGGREGATIONS = (NONE, SIMPLE)


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled part of a text."""

    label: str
    score: float  # mean probability of its tokens
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
class _LabelledToken:
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
        aggregation: "simple", the default, joins adjacent tokens of one label to an entity; "none" returns each token.
        truncate: cut off the end of texts that are too long.

    Raises:
        InvalidInputError: a text is empty or too long, the aggregation is unknown, or the results would be too large.
    """
    aggregation = SIMPLE if aggregation is None else aggregation
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
            found = _labelled_tokens(text, encoding, item.result[PROBABILITIES], labels)
            if aggregation == SIMPLE:
                entities = _joined(found, prefixes, text)
            else:
                entities = [_entity(token.label, [token], text) for token in found]
            yield LabelledText(tuple(entities), item.size, cut)

    return Work(items, read, sum(map(len, texts)))


def _labelled_tokens(text: str, encoding: KeptEncoding, probabilities: Array, labels: Sequence[str]) -> list[_LabelledToken]:
    """Label the tokens of the text itself, without [CLS] and [SEP]."""
    best = np.argmax(probabilities, axis=1)
    scores = np.take_along_axis(probabilities, best[:, None], axis=1)[:, 0]
    words = encoding.word_ids
    inner = [word is not None and word == before for word, before in zip(words, [None, *words], strict=False)]
    tokens = zip(best.tolist(), scores.tolist(), encoding.offsets, inner, encoding.special_tokens_mask, strict=True)
    return [
        # Some tokenizers take a run of Chinese or Thai for one word.
        _LabelledToken(labels[label], score, start, end, continues and not is_unspaced(text[start : start + 1]))
        for label, score, (start, end), continues, special in tokens
        if not special
    ]


def _joined(tokens: Sequence[_LabelledToken], prefixes: str, text: str) -> list[Entity]:
    """Join adjacent tokens of one label; entities of white space alone, which some tokenizers have tokens for, are left out."""
    spans = find_entities([token.label for token in tokens], prefixes, [token.inner for token in tokens])
    groups = [(name, tokens[first : last + 1]) for name, first, last in spans]
    return [_entity(name, group, text) for name, group in groups if text[group[0].start : group[-1].end].strip()]


def _entity(label: str, group: Sequence[_LabelledToken], text: str) -> Entity:
    start, end = trim(text, group[0].start, group[-1].end)
    return Entity(label, sum(token.score for token in group) / len(group), text[start:end], start, end)


TOKEN_CLASSIFICATION_TASK = TextTask(TOKEN_CLASSIFICATION, "labels tokens", prepare_token_classification)
