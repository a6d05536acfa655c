"""Cutting a list of texts into requests."""

from collections.abc import Iterator, Sequence


def chunks(texts: Sequence[str], most_texts: int, most_bytes: int) -> Iterator[slice]:
    """Slices of `texts`, in order, each of at most `most_texts` and `most_bytes` of UTF-8; a longer text goes alone."""
    start, size = 0, 0
    for index, text in enumerate(texts):
        length = len(text) if text.isascii() else len(text.encode())
        if index > start and (index - start == most_texts or size + length > most_bytes):
            yield slice(start, index)
            start, size = index, 0
        size += length
    if start < len(texts):
        yield slice(start, len(texts))
