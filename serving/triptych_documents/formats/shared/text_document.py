"""A document that is one text with units at places in it: what most text formats come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.spans import Span, replaced
from triptych_documents.unit import Piece, Unit, joined


class Place(Protocol):
    """Where a unit stands, and how it is written there."""

    @property
    def span(self) -> Span:
        """Of the document's text."""
        ...

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        """What stands in the span with these pieces."""
        ...


@dataclass(frozen=True)
class TextDocument:
    """A document that has been read.

    Args:
        text: all of it.
        encoding: of its bytes.
        units: in order.
        places: one for each unit.
        findings: what reading brought to light.
    """

    text: str
    encoding: Encoding
    units: Sequence[Unit]
    places: Sequence[Place]
    findings: Sequence[Finding] = ()

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """As Document says."""
        changes = [
            (self.places[index].span, self.places[index].written(pieces, self.encoding))
            for index, pieces in translations.items()
            if joined(pieces) != self.units[index].pieces
        ]
        return self.encoding.encode(replaced(self.text, changes))


MARKS = 4  # lines, tags or separators for each unit that there may be

_LINE_ENDS = (b"\n", b"\r")


class Bound:
    """The most units, checked before a document is read and while it is.

    Args:
        options: say how many; where they do not, nothing is checked.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._most = options.max_units

    def check(self, units: Sequence[Unit]) -> None:
        """After each that is found.

        Raises:
            DamagedDocumentError: these are too many.
        """
        if self._most is not None and len(units) > self._most:
            raise DamagedDocumentError(f"more than {self._most:,} segments, the most that are allowed; split the document")

    def check_marks(self, data: bytes, *signs: bytes, each: int = MARKS, lines: int = MARKS) -> None:
        """Before it is read: what there are as many of as of the things that a reader makes.

        Args:
            data: of the document.
            signs: other than line ends.
            each: as many as that for each unit.
            lines: likewise of lines.

        Raises:
            DamagedDocumentError: there are too many.
        """
        named = " or ".join(sign.decode() for sign in signs)
        for what, group, allowed in (("lines", _LINE_ENDS, lines), (f"times {named}", signs, each)):
            most = len(data) if self._most is None else self._most * allowed
            if len(data) > most and (count := sum(map(data.count, group))) > most:
                raise DamagedDocumentError(f"{count:,} {what}, at most {most:,} are allowed; split the document")
