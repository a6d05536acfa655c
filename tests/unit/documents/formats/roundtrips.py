"""Helpers and checks for every text format."""

import re
from collections.abc import Sequence

from triptych_documents.format import Document, ReadOptions, find_format
from triptych_documents.unit import Code, Piece

NOTHING = ReadOptions()


def read(name: str, data: str | bytes, options: ReadOptions = NOTHING) -> Document:
    """Read a document of a format."""
    return find_format(name).read(data.encode() if isinstance(data, str) else data, options)


def texts(document: Document) -> list[str]:
    """Return the texts of all units without codes."""
    return [unit.text for unit in document.units]


def shown(document: Document) -> list[str]:
    """Return all units with the raw text of codes in brackets."""
    return ["".join(piece if isinstance(piece, str) else f"⟦{piece.raw}⟧" for piece in unit.pieces) for unit in document.units]


def mirrored(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Swap the case of letters where this is reversible."""
    return tuple(
        piece if isinstance(piece, Code) else re.sub(r"[a-zA-ZäöüÄÖÜ]", lambda one: one[0].swapcase(), piece)
        for piece in pieces
    )


def swapped(document: Document, source: bytes) -> bytes:
    """Render with every text mirrored, after checking that without changes the document keeps its bytes."""
    assert document.render({}) == source
    assert document.render({index: unit.pieces for index, unit in enumerate(document.units)}) == source
    return document.render({index: mirrored(unit.pieces) for index, unit in enumerate(document.units)})


def turned(name: str, data: str | bytes, options: ReadOptions = NOTHING) -> str:
    """Render with every text mirrored, after checking that all changes are reversible."""
    source = data.encode() if isinstance(data, str) else data
    document = read(name, source, options)
    changed = swapped(document, source)
    again = read(name, changed, options)
    assert [unit.pieces for unit in again.units] == [mirrored(unit.pieces) for unit in document.units]
    back = read(name, swapped(again, changed), options)
    assert [unit.pieces for unit in back.units] == [unit.pieces for unit in document.units]
    return changed.decode()


def translated(name: str, data: str | bytes, *others: str, options: ReadOptions = NOTHING) -> str:
    """Render with these texts for the first units, which have no codes."""
    document = read(name, data, options)
    return document.render({index: (text,) for index, text in enumerate(others)}).decode()
