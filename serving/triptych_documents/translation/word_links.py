"""Word links between a sentence and its translation: from attention and identical words, or else by proportion."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triptych_documents.sentences import Alignment, Span
from triptych_text.sentences import UNSPACED

_LEAST = 0.1  # attention to an equal word: "die" of a German sentence is not the verb of an English one
# A word; punctuation and letters of scripts without spaces stand alone.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’.-]\w+)*|[^\w\s]")

Row = Sequence[float]


@dataclass(frozen=True)
class WordLinks:
    """Weights between the words of a translation and those of its source."""

    source: Sequence[Span]
    target: Sequence[Span]
    weights: Sequence[Row]  # one row per target word with one weight per source word; a row sums to 1, or 0 if nothing is known
    known: bool  # the weights come from an alignment


def link(source: str, target: str, alignment: Alignment | None, anchors: Mapping[Span, Span]) -> WordLinks:
    """Link the words of a sentence and its translation.

    Args:
        alignment: between the two; None if unknown.
        anchors: spans of the translation and the source spans that they certainly come from; each counts as one word.
    """
    sources = words_of(source, sorted(anchors.values()))
    targets = words_of(target, sorted(anchors))
    weights = _attended(sources, targets, alignment) if alignment else _proportional(sources, targets)
    for row, column in _certain(source, target, sources, targets, anchors, weights if alignment else ()):
        weights[row] = [float(index == column) for index in range(len(sources))]
    return WordLinks(sources, targets, weights, alignment is not None)


def words_of(text: str, units: Sequence[Span] = ()) -> list[Span]:
    """Return the spans of all words; each of `units` counts as one word."""
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
    """Return the index of the word where the token starts, or of the next word inside of it; -1 if there is none."""
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
    """Link words as if both sentences had the same order."""
    weights = []
    scale = len(sources) / max(1, len(targets))
    for row in range(len(targets)):
        first, last = row * scale, (row + 1) * scale
        overlaps = [max(0.0, min(last, column + 1) - max(first, column)) for column in range(len(sources))]
        weights.append(_normalized(overlaps))
    return weights


def _certain(
    source: str,
    target: str,
    sources: Sequence[Span],
    targets: Sequence[Span],
    anchors: Mapping[Span, Span],
    attended: Sequence[Row],
) -> list[tuple[int, int]]:
    """Return rows and columns of anchors, and of words that occur once in both sentences, unless attention contradicts."""
    column_of = {span: column for column, span in enumerate(sources)}
    pairs = [(row, column_of[anchors[span]]) for row, span in enumerate(targets) if anchors.get(span) in column_of]
    written = [source[start:end] for start, end in sources]
    words = [target[start:end] for start, end in targets]
    in_source, in_target = Counter(written), Counter(words)
    columns = {word: column for column, word in enumerate(written)}
    pairs += [
        (row, columns[word])
        for row, word in enumerate(words)
        if in_target[word] == 1 == in_source.get(word, 0) and (len(word) > 2 or word.isdigit())
        if not (attended and any(attended[row]) and word.islower() and attended[row][columns[word]] < _LEAST)
    ]
    return pairs
