"""What holds for every text format."""

import re
from collections.abc import Sequence

from triptych_documents.format import Document, ReadOptions, find_format, load_format
from triptych_documents.unit import Code, Piece

NOTHING = ReadOptions()


def read(name: str, data: str | bytes, options: ReadOptions = NOTHING) -> Document:
    """A document of the format of this name."""
    return load_format(find_format(name)).read(data.encode() if isinstance(data, str) else data, options)


def texts(document: Document) -> list[str]:
    """Of the units, codes left out."""
    return [unit.text for unit in document.units]


def shown(document: Document) -> list[str]:
    """Of the units, codes as the document has them, in brackets."""
    return ["".join(piece if isinstance(piece, str) else f"⟦{piece.raw}⟧" for piece in unit.pieces) for unit in document.units]


def mirrored(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Small letters as capitals and the other way round, where this can be taken back."""
    return tuple(
        piece if isinstance(piece, Code) else re.sub(r"[a-zA-ZäöüÄÖÜ]", lambda one: one[0].swapcase(), piece)
        for piece in pieces
    )


def turned(name: str, data: str | bytes, options: ReadOptions = NOTHING) -> str:
    """The document with every text mirrored, after it is checked that all ways lead back."""
    source = data.encode() if isinstance(data, str) else data
    document = read(name, source, options)
    assert document.render({index: unit.pieces for index, unit in enumerate(document.units)}) == source
    assert document.render({}) == source
    changed = document.render({index: mirrored(unit.pieces) for index, unit in enumerate(document.units)})
    again = read(name, changed, options)
    assert [unit.pieces for unit in again.units] == [mirrored(unit.pieces) for unit in document.units]
    back = again.render({index: mirrored(unit.pieces) for index, unit in enumerate(again.units)})
    assert [unit.pieces for unit in read(name, back, options).units] == [unit.pieces for unit in document.units]
    return changed.decode()


def translated(name: str, data: str | bytes, *others: str, options: ReadOptions = NOTHING) -> str:
    """The document with these texts as its first units', which have no codes."""
    document = read(name, data, options)
    return document.render({index: (text,) for index, text in enumerate(others)}).decode()
