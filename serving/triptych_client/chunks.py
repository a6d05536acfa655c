"""Cutting a list of texts or images into requests."""

from collections.abc import Iterator, Sequence


def chunks(sizes: Sequence[int], most_inputs: int, most_bytes: int) -> Iterator[slice]:
    """Slices of the inputs of these sizes, in order, each of at most `most_inputs` and `most_bytes`; a larger one is alone."""
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most_inputs or total + size > most_bytes):
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def text_bytes(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
