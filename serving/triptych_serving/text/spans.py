"""Spans of tokens in texts, which relate an alignment of tokens to words."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from triptych_text.sentences import Sentences

Span = tuple[int, int]  # [start, end) in Unicode code points

DECODED_TOGETHER = 16  # beginnings of a translation
Decode = Callable[[Sequence[Sequence[int]]], list[str]]  # rows of ids to texts


def source_spans(text: str, offsets: Iterable[Span], lead: int) -> tuple[Span, ...]:
    """Return the spans of a source's tokens, without the white space around words.

    Args:
        text: the source, without its frame.
        lead: characters of the frame before the text.

    Returns:
        One span per token. Tokens outside the text, such as the end of the sentence, have an empty span after the token before.
    """
    spans: list[Span] = []
    behind = 0
    for start, end in offsets:
        if start < end:
            span = bare_span(text, max(0, start - lead), max(0, end - lead))
            behind = max(behind, span[1])
        else:
            span = behind, behind
        spans.append(span)
    return tuple(spans)


def target_spans(text: str, tokens: Sequence[int], decode: Decode) -> tuple[Span, ...]:
    """Return the spans of a translation's tokens: each covers the text that appears when it is decoded too.

    Args:
        text: the decoded translation.

    Returns:
        Spans in order, without overlap. Of the tokens that share a character, only the last one has a non-empty span.
    """
    counts = range(1, len(tokens))
    # A few in each call, which keeps Python's lock until it ends.
    some = (counts[start : start + DECODED_TOGETHER] for start in range(0, len(counts), DECODED_TOGETHER))
    beginnings = [beginning for part in some for beginning in decode([tokens[:count] for count in part])]
    # The end of a decoded beginning may change with more tokens: half a character, a space.
    ends = [*accumulate((_common(beginning, text) for beginning in beginnings), max), len(text)]
    return tuple(bare_span(text, start, end) for start, end in zip((0, *ends), ends if tokens else (), strict=False))


def joined_spans(sentences: Sentences, texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> tuple[Span, ...]:
    """Convert spans of sentences to spans of the whole text.

    Args:
        sentences: hold the white space between them.
        texts: the sentences, or their translations.
        spans: of each text.
    """
    start, shifted = len(sentences.gaps[0]), []
    for index, (text, own) in enumerate(zip(texts, spans, strict=True)):
        shifted += [(start + first, start + last) for first, last in own]
        start += len(text) + len(sentences.gap_after(index, text))
    return tuple(shifted)


def bare_span(text: str, start: int, end: int) -> Span:
    """Strip white space from a span; of white space alone, the empty span at its start is left."""
    kept = text[start:end].rstrip()
    return start + len(kept) - len(kept.lstrip()), start + len(kept)


def _common(beginning: str, text: str) -> int:
    """Return the length of the common beginning."""
    if text.startswith(beginning):
        return len(beginning)
    return next((place for place, (one, other) in enumerate(zip(beginning, text, strict=False)) if one != other), len(text))
