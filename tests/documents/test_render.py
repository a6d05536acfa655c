"""Rendering of written documents by LibreOffice."""

import shutil
from pathlib import Path

import pytest

from ..unit.documents.formats.office import docx, odt
from .render import main

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not (shutil.which("soffice") and shutil.which("pdftoppm")), reason="needs LibreOffice and poppler"),
]

WORDS = "Some words that are turned round"


def test_documents_open_and_look_alike(tmp_path: Path) -> None:
    bold = f"<w:r><w:rPr><w:b/></w:rPr><w:t>{WORDS}</w:t></w:r>"
    word = tmp_path / "word.docx"
    word.write_bytes(docx(f"<w:p>{bold}<w:r><w:t>, and more of them.</w:t></w:r></w:p>" * 90))
    text = tmp_path / "text.odt"
    text.write_bytes(odt(f"<text:h>Heading</text:h><text:p>{WORDS}<text:line-break/>and others</text:p>"))
    assert main(tmp_path / "out", [word, text]) == 0
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {"word.turned.png", "text.turned.png"}
