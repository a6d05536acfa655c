"""A document on its way: read, and waiting for its units."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from triptych_cli.documents.discovery import Found
from triptych_documents.findings import Finding
from triptych_documents.format import Document
from triptych_documents.sentences import SentencePair
from triptych_documents.unit import Piece


@dataclass(eq=False, slots=True)
class Opened:
    """Of one thread.

    Args:
        found: where it came from.
        digest: SHA-256 of the source.
        size: bytes of the source.
        document: as its format has read it.
    """

    found: Found
    digest: str
    size: int
    document: Document
    translations: dict[int, Sequence[Piece]] = field(default_factory=dict)
    pairs: dict[int, Sequence[SentencePair]] = field(default_factory=dict)
    notes: dict[int, Sequence[Finding]] = field(default_factory=dict)

    def put(self, index: int, pieces: Sequence[Piece], pairs: Sequence[SentencePair], findings: Sequence[Finding]) -> bool:
        """A unit is done. True with the last one."""
        self.translations[index] = pieces
        self.pairs[index] = pairs
        if findings:
            self.notes[index] = findings
        return len(self.translations) == len(self.document.units)

    @property
    def bytes_done(self) -> float:
        """About: as many of its bytes as of its units."""
        return self.size * len(self.translations) / max(1, len(self.document.units))

    @property
    def findings(self) -> list[Finding]:
        """Of the document, then of its units in their order."""
        return [*self.document.findings, *(finding for index in sorted(self.notes) for finding in self.notes[index])]

    @property
    def all_pairs(self) -> list[SentencePair]:
        """In the document's order."""
        return [pair for index in sorted(self.pairs) for pair in self.pairs[index]]
