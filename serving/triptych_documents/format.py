"""What every format can do, and how to find the one that a document has.

A reader parses bytes into units and remembers where each stood; the document writes translations into these places and leaves
every other byte as it was. Formats never talk to models.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from triptych_documents.errors import UnknownFormatError
from triptych_documents.findings import Finding
from triptych_documents.unit import Piece, Unit


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What of a document is translated, and how it is read; each format looks at what concerns it.

    Args:
        source_language: BCP 47; "" where nobody said. Formats that name their languages check or fill it in.
        target_language: likewise.
        encoding: of text formats; "" finds out: a byte order mark, what the document says, else UTF-8.
        columns: of CSV and TSV: names of the header or numbers from 1.
        header: of CSV and TSV: the first record has names. None finds out: it has where `columns` are names.
        keys: of JSON and YAML: dotted paths with `*` (one member) and `**` (any depth); only these are translated. Empty: all.
        skip_keys: likewise: these are not.
        wrapped: of plain text: lines are broken at a width, so paragraphs are translated as a whole and wrapped again. None
            finds out for each paragraph.
        retranslate: of PO and XLIFF: translate what has a translation already, too.
        mark_fuzzy: of PO: flag what was translated as fuzzy (of XLIFF: state needs-review-translation).
        max_units: documents with more are refused before they have taken much memory; None: there is no limit.
    """

    source_language: str = ""
    target_language: str = ""
    encoding: str = ""
    columns: tuple[str, ...] = ()
    header: bool | None = None
    keys: tuple[str, ...] = ()
    skip_keys: tuple[str, ...] = ()
    wrapped: bool | None = None
    retranslate: bool = False
    mark_fuzzy: bool = False
    max_units: int | None = None


class Document(Protocol):
    """A document that has been read."""

    @property
    def units(self) -> Sequence[Unit]:
        """In the document's order."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """What reading it brought to light; after `render` also which translations could not be written."""
        ...

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """The document with other pieces in the places of these units, named by their index; the others stay as they are.

        A unit whose pieces are equal to its own stays byte for byte. Codes among the pieces are the unit's own, each of them
        once, an opening one before the one that closes it.

        Raises:
            DocumentError: the document's encoding has no such character, and no way to write it.
        """
        ...


class Format(Protocol):
    """Reads documents of one kind; a module has one, named FORMAT."""

    @property
    def name(self) -> str: ...

    def read(self, data: bytes, options: ReadOptions) -> Document:
        """Raises DocumentError: it cannot be read, or an option cannot be used."""
        ...


@dataclass(frozen=True)
class FormatInfo:
    """How documents of a format are known."""

    name: str
    reader: str  # "module:attribute" in `formats`, imported on first use
    suffixes: tuple[str, ...]
    mime_types: tuple[str, ...]  # the first is its own


FORMATS = (
    FormatInfo("text", "plain:FORMAT", (".txt", ".text"), ("text/plain",)),
    FormatInfo("markdown", "markdown.reader:FORMAT", (".md", ".markdown"), ("text/markdown",)),
    FormatInfo("html", "html.reader:FORMAT", (".html", ".htm", ".xhtml"), ("text/html", "application/xhtml+xml")),
    FormatInfo(
        "docx", "docx.reader:FORMAT", (".docx",), ("application/vnd.openxmlformats-officedocument.wordprocessingml.document",)
    ),
    FormatInfo("odt", "odt.reader:FORMAT", (".odt",), ("application/vnd.oasis.opendocument.text",)),
    FormatInfo("srt", "subtitles:SRT", (".srt",), ("application/x-subrip",)),
    FormatInfo("vtt", "subtitles:VTT", (".vtt",), ("text/vtt",)),
    FormatInfo("po", "po.reader:FORMAT", (".po", ".pot"), ("text/x-gettext-translation",)),
    FormatInfo("xliff", "xliff.reader:FORMAT", (".xlf", ".xliff"), ("application/xliff+xml", "application/x-xliff+xml")),
    FormatInfo("json", "structured.json:FORMAT", (".json",), ("application/json",)),
    FormatInfo("yaml", "structured.yaml:FORMAT", (".yaml", ".yml"), ("application/yaml", "text/yaml")),
    FormatInfo("csv", "tabular:CSV", (".csv",), ("text/csv",)),
    FormatInfo("tsv", "tabular:TSV", (".tsv", ".tab"), ("text/tab-separated-values",)),
)


def find_format(name: str = "", path: str = "", mime_type: str = "") -> FormatInfo:
    """By the format's name, else by media type, else by the path's suffix.

    Raises:
        UnknownFormatError: none of them says.
    """
    media = mime_type.partition(";")[0].strip().lower()
    suffix = PurePath(path).suffix.lower()
    for kind in FORMATS:
        if kind.name == name if name else media in kind.mime_types if media else suffix in kind.suffixes:
            return kind
    asked = f"format {name!r}" if name else f"media type {media!r}" if media else f"{path!r}"
    known = ", ".join(kind.name for kind in FORMATS)
    raise UnknownFormatError(f"{asked} is not a document that can be translated; formats: {known}")


def load_format(kind: FormatInfo) -> Format:
    """Its reader."""
    module, _, attribute = kind.reader.partition(":")
    reader: Format = getattr(importlib.import_module(f"triptych_documents.formats.{module}"), attribute)
    return reader
