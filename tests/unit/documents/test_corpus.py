"""Real documents in folders named by format: `TRIPTYCH_CORPUS=folder make full`."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from triptych_documents.format import FORMATS, Document, Format, ReadOptions, find_format, load_format
from triptych_documents.unit import Code, Piece, Unit

CORPUS = Path(os.environ.get("TRIPTYCH_CORPUS") or "/nonexistent")
BILINGUAL = ("po", "xliff")  # they keep their sources beside the translations
OPTIONS = ReadOptions(retranslate=True)

pytestmark = [pytest.mark.full, pytest.mark.skipif(not CORPUS.is_dir(), reason="TRIPTYCH_CORPUS names no folder")]


def documents() -> list[Path]:
    return sorted(path for kind in FORMATS for path in (CORPUS / kind.name).glob("*") if path.suffix.lower() in kind.suffixes)


def reader(path: Path) -> Format:
    return load_format(find_format(name=path.parent.name))


def mirrored(text: str) -> str:
    """Swap the case of letters where this is reversible."""
    return "".join(new if (new := one.swapcase()).swapcase() == one and len(new) == 1 else one for one in text)


def changed(document: Document) -> dict[int, tuple[Piece, ...]]:
    return {index: pieces_of(unit) for index, unit in enumerate(document.units)}


def pieces_of(unit: Unit) -> tuple[Piece, ...]:
    return tuple(piece if isinstance(piece, Code) else mirrored(piece) for piece in unit.pieces)


def shape(pieces: Sequence[Piece], keeps_space: bool) -> list[object]:
    """Return texts and codes without soft white space."""
    texts = (piece if keeps_space or isinstance(piece, Code) else re.sub(r"\s+", " ", piece) for piece in pieces)
    return [(piece.role, piece.pair) if isinstance(piece, Code) else piece for piece in texts]


def shapes(units: Sequence[Unit], instead: Mapping[int, Sequence[Piece]] | None = None) -> list[list[object]]:
    """Return the shapes of all units, or of their replacements."""
    return [shape((instead or {}).get(index, unit.pieces), unit.keeps_space) for index, unit in enumerate(units)]


def test_there_are_sixty_documents_in_all_formats() -> None:
    found = documents()
    assert len(found) >= 60
    assert {path.parent.name for path in found} == {kind.name for kind in FORMATS}


@pytest.mark.parametrize("path", documents(), ids=lambda path: f"{path.parent.name}/{path.name}")
class TestDocument:
    def test_identity_keeps_the_bytes(self, path: Path) -> None:
        data = path.read_bytes()
        document = reader(path).read(data, OPTIONS)
        assert document.render({}) == data
        assert document.render({index: unit.pieces for index, unit in enumerate(document.units)}) == data

    def test_changes_round_trip(self, path: Path) -> None:
        first = reader(path).read(path.read_bytes(), OPTIONS)
        pieces = changed(first)
        second = reader(path).read(first.render(pieces), OPTIONS)
        if path.parent.name in BILINGUAL:
            assert shapes(second.units) == shapes(first.units)
            return
        assert shapes(second.units) == shapes(first.units, pieces)
        third = reader(path).read(second.render(changed(second)), OPTIONS)
        assert shapes(third.units) == shapes(first.units)
