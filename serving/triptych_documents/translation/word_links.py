"""Words of a translation linked with those of its source: by attention, by words that are the same, else by proportion."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych_documents.sentences import Alignment, Span
from triptych_text.sentences import UNSPACED

# A word; signs, and letters of scripts that have no spaces, stand alone.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’.-]\w+)*|[^\w\s]")

Row = Sequence[float]


@dataclass(frozen=True)
class WordLinks:
    """Which words of a translation come from which of the source.

    Args:
        source: words' places.
        target: likewise.
        weights: for each word of the translation one for each of the source, with a sum of 1, or of 0 where nothing is known.
        known: they are from an alignment.
    """

    source: Sequence[Span]
    target: Sequence[Span]
    weights: Sequence[Row]
    known: bool


def link(source: str, target: str, alignment: Alignment | None, anchors: Mapping[Span, Span]) -> WordLinks:
    """Link them.

    Args:
        source: a sentence as it was asked.
        target: its translation.
        alignment: of both; None where there is none.
        anchors: places in the translation and where they come from for certain; each is taken for one word.
    """
    sources = words_of(source, sorted(anchors.values()))
    targets = words_of(target, sorted(anchors))
    weights = _attended(sources, targets, alignment) if alignment else _proportional(sources, targets)
    for row, column in _certain(source, target, sources, targets, anchors):
        weights[row] = [float(index == column) for index in range(len(sources))]
    return WordLinks(sources, targets, weights, alignment is not None)


def words_of(text: str, units: Sequence[Span] = ()) -> list[Span]:
    """Where its words stand.

    Args:
        text: any.
        units: in order: places that are one word each, whatever is in them.
    """
    spans: list[Span] = []
    at = 0
    for start, end in (*units, (len(text), len(text))):
        spans += [match.span() for match in _WORD.finditer(text, at, start)]
        if start < end:
            spans.append((start, end))
        at = max(at, end)
    return spans


def _attended(sources: Sequence[Span], targets: Sequence[Span], alignment: Alignment) -> list[list[float]]:
    columns = [_word_at(sources, span) for span in alignment.source]
    weights = [[0.0] * len(sources) for _ in targets]
    for span, attention in zip(alignment.target, alignment.weights, strict=False):
        row = _word_at(targets, span)
        if row < 0:
            continue
        into = weights[row]
        for column, weight in zip(columns, attention, strict=False):
            if column >= 0:
                into[column] += weight
    return [_normalized(row) for row in weights]


def _word_at(words: Sequence[Span], span: Span) -> int:
    """The word in which the token begins, or the next in it; -1 where it is in none."""
    start, end = span
    if start >= end:
        return -1
    index = bisect_right(words, (start, 1 << 62)) - 1
    if index >= 0 and words[index][1] > start:
        return index
    return index + 1 if index + 1 < len(words) and words[index + 1][0] < end else -1


def _normalized(row: list[float]) -> list[float]:
    total = sum(row)
    return [weight / total for weight in row] if total > 0 else row


def _proportional(sources: Sequence[Span], targets: Sequence[Span]) -> list[list[float]]:
    """As if both had the same order."""
    weights = []
    scale = len(sources) / max(1, len(targets))
    for row in range(len(targets)):
        first, last = row * scale, (row + 1) * scale
        overlaps = [max(0.0, min(last, column + 1) - max(first, column)) for column in range(len(sources))]
        weights.append(_normalized(overlaps))
    return weights


def _certain(
    source: str, target: str, sources: Sequence[Span], targets: Sequence[Span], anchors: Mapping[Span, Span]
) -> list[tuple[int, int]]:
    """Rows and columns of anchors, and of words that both have once."""
    column_of = {span: column for column, span in enumerate(sources)}
    pairs = [(row, column_of[anchors[span]]) for row, span in enumerate(targets) if anchors.get(span) in column_of]
    written = [source[start:end] for start, end in sources]
    said = [target[start:end] for start, end in targets]
    in_source, in_target = Counter(written), Counter(said)
    columns = {word: column for column, word in enumerate(written)}
    pairs += [
        (row, columns[word])
        for row, word in enumerate(said)
        if in_target[word] == 1 == in_source.get(word, 0) and (len(word) > 2 or word.isdigit())
    ]
    return pairs
