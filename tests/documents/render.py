"""Compares office documents before and after translation as LibreOffice renders them: pages, images and words, side by side.

    python -m tests.documents.render OUT BEFORE.docx AFTER.docx   # a document and its translation
    python -m tests.documents.render OUT DOCUMENT.odt ...         # documents and copies with reversed words

Writes OUT/NAME.png with the first pages, before on the left. Needs LibreOffice and poppler (Debian: libreoffice-writer,
poppler-utils). Exits with 1 if a document does not open or its structure changed.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from triptych_documents.format import ReadOptions, find_format
from triptych_documents.unit import Code, Piece

PAGES = 3  # that are shown
SLACK = 0.2  # of pages: translations are longer or shorter


@dataclass(frozen=True)
class Rendering:
    """Rendering of a document by LibreOffice; empty if it does not open."""

    pages: int
    pictures: int
    words: int
    shown: Sequence[Image.Image]


def rendered(document: Path) -> Rendering:
    """Render a document to PDF."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = f"-env:UserInstallation=file://{folder}/profile"
        _run("soffice", profile, "--headless", "--convert-to", "pdf", "--outdir", name, str(document))
        pdf = folder / f"{document.stem}.pdf"
        if not pdf.exists():
            return Rendering(0, 0, 0, ())
        pages = re.search(r"^Pages:\s+(\d+)", _run("pdfinfo", str(pdf)), re.MULTILINE)
        _run("pdftoppm", "-r", "50", "-png", "-l", str(PAGES), str(pdf), f"{folder}/page")
        shown = [_loaded(path) for path in sorted(folder.glob("page*.png"))]
        pictures = len(_run("pdfimages", "-list", str(pdf)).splitlines()) - 2
        words = len(_run("pdftotext", str(pdf), "-").split())
        return Rendering(int(pages[1]) if pages else 0, pictures, words, shown)


def _loaded(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def turned(document: Path, folder: Path) -> Path:
    """Return the document with reversed words, which have the same length."""
    read = find_format(path=document.name).read(document.read_bytes(), ReadOptions(target_language="de"))
    pieces = {index: tuple(map(_turned, unit.pieces)) for index, unit in enumerate(read.units)}
    out = folder / f"{document.stem}.turned{document.suffix}"
    out.write_bytes(read.render(pieces))
    return out


def _turned(piece: Piece) -> Piece:
    return piece if isinstance(piece, Code) else re.sub(r"[^\W\d_]+", lambda found: found[0][::-1], piece)


def problems(before: Rendering, after: Rendering) -> Iterator[str]:
    """Yield differences that a translation must not make."""
    if not before.pages or not after.pages:
        yield "does not open"
        return
    if abs(before.pages - after.pages) > max(1, SLACK * before.pages):
        yield f"{before.pages} pages became {after.pages}"
    if before.pictures != after.pictures:
        yield f"{before.pictures} pictures became {after.pictures}"
    if not 0.5 <= (after.words + 1) / (before.words + 1) <= 2:
        yield f"{before.words} words became {after.words}"


def sheet(before: Rendering, after: Rendering) -> Image.Image:
    """Draw the first pages of both in two columns."""
    columns = [before.shown, after.shown]
    width = max((page.width for column in columns for page in column), default=1)
    height = max(sum(page.height for page in column) for column in columns)
    out = Image.new("RGB", (2 * width + 10, height), "gray")
    for index, column in enumerate(columns):
        top = 0
        for page in column:
            out.paste(page, (index * (width + 10), top))
            top += page.height
    return out


def pairs(documents: Sequence[Path], folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield documents and their translations."""
    if len(documents) == 2 and _translated(*documents):
        yield documents[0], documents[1]
        return
    for document in documents:
        yield document, turned(document, folder)


def _translated(before: Path, after: Path) -> bool:
    """Return whether the second is the translation of the first: the same name in another folder, or with a language."""
    return before.suffix == after.suffix and after.stem.startswith(before.stem)


def main(out: Path, documents: Sequence[Path]) -> int:
    """Print a line for each document."""
    out.mkdir(parents=True, exist_ok=True)
    bad = 0
    for source, target in pairs(documents, out):
        before, after = rendered(source), rendered(target)
        sheet(before, after).save(out / f"{target.stem}.png")
        found = list(problems(before, after))
        bad += bool(found)
        kinds = ("pages", "pictures", "words")
        counts = ", ".join(f"{getattr(before, kind)}/{getattr(after, kind)} {kind}" for kind in kinds)
        sys.stdout.write(f"{'; '.join(found) or 'same'}\t{counts}\t{source.name}\n")
        sys.stdout.flush()
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
