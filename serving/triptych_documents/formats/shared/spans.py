"""Places in a text, and the text with others in these places."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import AnyStr

_LINE_END = re.compile(r"\r\n|\n|\r")

Span = tuple[int, int]  # [start, end): characters of a str, bytes of bytes


def replaced(source: AnyStr, changes: Iterable[tuple[Span, AnyStr]]) -> AnyStr:
    """The source with what stands in each span replaced; everything else stays.

    Args:
        source: text or bytes.
        changes: spans that do not overlap, in any order; an empty span inserts. Changes of one place stay in their order.

    Raises:
        ValueError: spans overlap, or are not within the source.
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


class Lines:
    r"""Which line of a text a place is in, and where lines begin. Lines end with \n, \r\n or \r.

    Args:
        text: of the document.
    """

    def __init__(self, text: str) -> None:
        self.starts = [
            0,
            *(found.end() for found in _LINE_END.finditer(text)),
        ]  # what is after the last line end is a line, too
        self._end = len(text)

    def number(self, offset: int) -> int:
        """Of the line at this offset, from 1."""
        return bisect_right(self.starts, offset)

    def where(self, offset: int) -> str:
        """As Unit.where says it."""
        return f"line {self.number(offset)}"

    def span(self, first: int, after: int) -> Span:
        """Of the lines [first, after), from 0, with their line ends."""
        return self._start(first), self._start(after)

    def _start(self, line: int) -> int:
        return self.starts[line] if line < len(self.starts) else self._end
