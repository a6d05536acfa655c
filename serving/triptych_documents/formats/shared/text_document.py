"""Documents that are one text with units at spans of it: spans, lines, and the limit on the number of units."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding
from triptych_documents.format import ReadOptions
from triptych_documents.interruption import checkpoint
from triptych_documents.unit import Piece, Unit, changed

_LINE_END = re.compile(r"\r\n|\n|\r")

Span = tuple[int, int]  # [start, end)


def replaced(text: str, changes: Iterable[tuple[Span, str]]) -> str:
    """Replace the content of some spans and keep everything else.

    Args:
        changes: non-overlapping spans in any order; an empty span inserts. Changes at one place keep their order.

    Raises:
        ValueError: spans overlap or exceed the text.
    """
    parts: list[str] = []
    at = 0
    for (start, end), new in sorted(changes, key=lambda change: change[0]):
        if not at <= start <= end <= len(text):
            raise ValueError(f"span {start} to {end} overlaps another one or the end: {at} to {len(text)} are free")
        parts += (text[at:start], new)
        at = end
    return "".join((*parts, text[at:]))


class LineIndex:
    r"""Maps offsets to lines. Lines end with \n, \r\n or \r."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(found.end() for found in _LINE_END.finditer(text))]  # text after the last line end is a line, too
        self._end = len(text)

    def where(self, offset: int) -> str:
        """Return the place of an offset as in Unit.where; the first line is "line 1"."""
        return f"line {bisect_right(self.starts, offset)}"

    def span(self, first: int, after: int) -> Span:
        """Return the span of lines [first, after), from 0, with their line ends."""
        return self._start(first), self._start(after)

    def _start(self, line: int) -> int:
        return self.starts[line] if line < len(self.starts) else self._end


class UnitSlot(Protocol):
    """Place of a unit in the text."""

    @property
    def span(self) -> Span: ...

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        """Return the new content of the span."""


@dataclass(frozen=True)
class TextDocument:
    """A text document after reading."""

    text: str
    encoding: Encoding
    units: Sequence[Unit]
    places: Sequence[UnitSlot]  # one for each unit
    findings: Sequence[Finding] = ()
    language: tuple[Span, str] | None = None  # place of the document's language, and what a translation has there

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        changes = [
            (self.places[index].span, self.places[index].written(pieces, self.encoding))
            for index, pieces in changed(self.units, translations).items()
        ]
        if changes and self.language:
            changes.append(self.language)
        return self.encoding.encode(replaced(self.text, changes))


MARKS = 4  # lines, tags or separators per allowed unit

_LINE_ENDS = (b"\n", b"\r")


class UnitLimit:
    """Checks the number of units before and while a document is read: memory grows with units, and a few bytes can make one."""

    def __init__(self, options: ReadOptions) -> None:
        self._most = options.max_units
        self._count = 0

    def count(self) -> None:
        """Count a unit.

        Raises:
            DamagedDocumentError: there are too many.
            InterruptionError: nobody waits for the document any more.
        """
        checkpoint()
        self._count += 1
        if self._most is not None and self._count > self._most:
            raise DamagedDocumentError(f"more than {self._most:,} segments, the maximum; split the document")

    def check_marks(self, data: bytes, *signs: bytes, each: int = MARKS, lines: int = MARKS) -> None:
        """Estimate the size of a document before it is read, by counting what makes a reader create objects.

        Args:
            signs: byte strings to count besides line ends.
            each: maximum number of signs per allowed unit.
            lines: maximum number of lines per allowed unit.

        Raises:
            DamagedDocumentError: there are too many.
        """
        named = " or ".join(sign.decode() for sign in signs)
        for what, group, allowed in (("lines", _LINE_ENDS, lines), (f"times {named}", signs, each)):
            most = len(data) if self._most is None else self._most * allowed
            if len(data) > most and (count := sum(map(data.count, group))) > most:
                raise DamagedDocumentError(f"{count:,} {what}, the maximum is {most:,}; split the document")


def decoded_text(data: bytes, options: ReadOptions, *signs: bytes) -> tuple[str, Encoding, UnitLimit]:
    """Decode a text document after estimating its size; `signs` as for `UnitLimit.check_marks`. Also raises as `decode`."""
    bound = UnitLimit(options)
    bound.check_marks(data, *signs)
    return *decode(data, options.encoding), bound


def collected(
    text: str, encoding: Encoding, found: Iterable[tuple[Unit, UnitSlot]], limit: UnitLimit, findings: Sequence[Finding] = ()
) -> TextDocument:
    """Return the document of these units and their places, within the limit."""
    units: list[Unit] = []
    places: list[UnitSlot] = []
    for unit, place in found:
        units.append(unit)
        places.append(place)
        limit.count()
    return TextDocument(text, encoding, units, places, findings)
