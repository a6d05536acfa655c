"""Real documents in folders named by format: `TRIPTYCH_CORPUS=folder make full`."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from triptych_documents.format import FORMATS, Document, ReadOptions, find_format, load_format
from triptych_documents.unit import Code, Piece, Unit

CORPUS = Path(os.environ.get("TRIPTYCH_CORPUS") or "/nonexistent")
BILINGUAL = ("po", "xliff")  # keep their sources beside the translations
DOCUMENTS = sorted(path for kind in FORMATS for path in (CORPUS / kind.name).glob("*") if path.suffix.lower() in kind.suffixes)

pytestmark = [pytest.mark.full, pytest.mark.skipif(not CORPUS.is_dir(), reason="TRIPTYCH_CORPUS names no folder")]


def read(path: Path, data: bytes) -> Document:
    return load_format(find_format(name=path.parent.name)).read(data, ReadOptions(retranslate=True))


def mirrored(text: str) -> str:
    """Swap the case of letters where this is reversible."""
    return "".join(new if (new := one.swapcase()).swapcase() == one and len(new) == 1 else one for one in text)


def changed(document: Document) -> dict[int, tuple[Piece, ...]]:
    return {
        index: tuple(piece if isinstance(piece, Code) else mirrored(piece) for piece in unit.pieces)
        for index, unit in enumerate(document.units)
    }


def shapes(units: Sequence[Unit], instead: Mapping[int, Sequence[Piece]] | None = None) -> list[list[object]]:
    """Return texts without soft white space, and codes, of all units or of their replacements."""
    return [
        [
            (piece.role, piece.pair) if isinstance(piece, Code) else piece if unit.keeps_space else re.sub(r"\s+", " ", piece)
            for piece in (instead or {}).get(index, unit.pieces)
        ]
        for index, unit in enumerate(units)
    ]


def test_there_are_sixty_documents_in_all_formats() -> None:
    assert len(DOCUMENTS) >= 60
    assert {path.parent.name for path in DOCUMENTS} == {kind.name for kind in FORMATS}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_identity_keeps_the_bytes_and_changes_round_trip(path: Path) -> None:
    data = path.read_bytes()
    first = read(path, data)
    assert first.render({}) == first.render({index: unit.pieces for index, unit in enumerate(first.units)}) == data
    pieces = changed(first)
    second = read(path, first.render(pieces))
    if path.parent.name in BILINGUAL:
        assert shapes(second.units) == shapes(first.units)
        return
    assert shapes(second.units) == shapes(first.units, pieces)
    assert shapes(read(path, second.render(changed(second))).units) == shapes(first.units)
