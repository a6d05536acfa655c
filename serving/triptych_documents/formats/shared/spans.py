"""Text spans: replacing stretches of a text, and line numbers."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import AnyStr

_LINE_END = re.compile(r"\r\n|\n|\r")

Span = tuple[int, int]  # [start, end): characters of a str, or bytes


def replaced(source: AnyStr, changes: Iterable[tuple[Span, AnyStr]]) -> AnyStr:
    """Replace the content of some spans and keep everything else.

    Args:
        source: text or bytes.
        changes: non-overlapping spans in any order; an empty span inserts. Changes at one place keep their order.

    Raises:
        ValueError: spans overlap or exceed the source.
    """
    parts: list[AnyStr] = []
    at = 0
    for (start, end), new in sorted(changes, key=lambda change: change[0]):
        if not at <= start <= end <= len(source):
            raise ValueError(f"span {start} to {end} overlaps another one or the end: {at} to {len(source)} are free")
        parts += (source[at:start], new)
        at = end
    parts.append(source[at:])
    return source[:0].join(parts)


class LineIndex:
    r"""Maps offsets to lines. Lines end with \n, \r\n or \r."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(found.end() for found in _LINE_END.finditer(text))]  # text after the last line end is a line, too
        self._end = len(text)

    def number(self, offset: int) -> int:
        """Return the number of the line at an offset, from 1."""
        return bisect_right(self.starts, offset)

    def where(self, offset: int) -> str:
        """Return the place of an offset as in Unit.where."""
        return f"line {self.number(offset)}"

    def span(self, first: int, after: int) -> Span:
        """Return the span of lines [first, after), from 0, with their line ends."""
        return self._start(first), self._start(after)

    def _start(self, line: int) -> int:
        return self.starts[line] if line < len(self.starts) else self._end
