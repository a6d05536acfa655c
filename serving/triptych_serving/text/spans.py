"""Where tokens stand in texts, so that an alignment of tokens is one of words."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from triptych_text.sentences import Sentences

Span = tuple[int, int]  # [start, end) in Unicode code points

Decode = Callable[[Sequence[Sequence[int]]], list[str]]  # rows of ids to texts


def source_spans(text: str, offsets: Iterable[Span], lead: int) -> tuple[Span, ...]:
    """Of a source's tokens, without the white space around words.

    Args:
        text: the source, without its frame.
        offsets: as a tokenizer gives them.
        lead: characters that the frame has before the text.

    Returns:
        What is no part of the text, such as the end of the sentence, is empty, and stands behind the token before.
    """
    spans: list[Span] = []
    behind = 0
    for start, end in offsets:
        if start < end:
            span = _bare(text, max(0, start - lead), max(0, end - lead))
            behind = max(behind, span[1])
        else:
            span = behind, behind
        spans.append(span)
    return tuple(spans)


def target_spans(text: str, tokens: Sequence[int], decode: Decode) -> tuple[Span, ...]:
    """Of a translation's tokens: a token stands where the text goes on once it is decoded too.

    Args:
        text: what all tokens say.
        tokens: of the translation.
        decode: the tokenizer's.

    Returns:
        In order, without overlap. Tokens that are a part of a character are empty but for the last of them.
    """
    beginnings = decode([tokens[:count] for count in range(1, len(tokens))])
    # What is decoded of a beginning may end in ways that more tokens change: half a character, a space.
    ends = [*accumulate((_common(beginning, text) for beginning in beginnings), max), len(text)]
    return tuple(_bare(text, start, end) for start, end in zip((0, *ends), ends if tokens else (), strict=False))


def joined_spans(sentences: Sentences, texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> tuple[Span, ...]:
    """Those of sentences as those of the whole text.

    Args:
        sentences: have what stands between them.
        texts: what stands in their places.
        spans: of each of these.
    """
    start, shifted = 0, []
    for gap, text, own in zip(sentences.gaps, texts, spans, strict=False):
        start += len(gap)
        shifted += [(start + first, start + last) for first, last in own]
        start += len(text)
    return tuple(shifted)


def _common(beginning: str, text: str) -> int:
    """Characters that both begin with."""
    if text.startswith(beginning):
        return len(beginning)
    return next((place for place, (one, other) in enumerate(zip(beginning, text, strict=False)) if one != other), len(text))


def _bare(text: str, start: int, end: int) -> Span:
    """Without white space at its ends."""
    while start < end and text[end - 1].isspace():
        end -= 1
    while start < end and text[start].isspace():
        start += 1
    return start, end
