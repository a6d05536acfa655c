"""A document that is one text with units at places in it: what most text formats come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from triptych_documents.encoding import Encoding
from triptych_documents.findings import Finding
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
