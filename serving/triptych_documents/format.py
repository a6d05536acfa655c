"""Interface of document formats, and the table of formats.

A reader parses bytes into units and remembers where each one stood. The document writes translations into these places and
leaves every other byte unchanged. Formats never talk to models.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol

from triptych_documents.errors import UnknownFormatError
from triptych_documents.findings import Finding
from triptych_documents.unit import Piece, Unit


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading a document; each format uses those that apply to it."""

    source_language: str = ""  # BCP 47; "" if unknown. Formats that name their languages check it or fill it in.
    target_language: str = ""  # BCP 47; "" if unknown
    encoding: str = ""  # of text formats; "" detects it: byte order mark, declaration in the document, else UTF-8
    columns: tuple[str, ...] = ()  # CSV and TSV: names from the header, or numbers from 1
    header: bool | None = None  # CSV and TSV: whether the first record has names. None: only if `columns` are names.
    translate_header: bool = False  # CSV and TSV: also translate the names
    keys: tuple[str, ...] = ()
    """JSON and YAML: dotted paths with `*` (one member) and `**` (any depth) to translate. Empty: all."""
    skip_keys: tuple[str, ...] = ()  # JSON and YAML: paths that are not translated
    wrapped: bool | None = None
    """Plain text: whether lines are wrapped at a width, so that paragraphs are translated whole and wrapped again. None:
    detected per paragraph."""
    retranslate: bool = False  # PO, XLIFF, .ts and .xcstrings: also translate what has a translation
    mark_fuzzy: bool = False
    """New translations are marked for review, in PO as fuzzy, in XLIFF with the state needs-review-translation, in .ts as
    unfinished, in .xcstrings with the state needs_review."""
    max_units: int | None = None
    """Maximum number of units; larger documents are rejected before they take much memory. None: no limit."""


class Document(Protocol):
    """A document after reading."""

    @property
    def units(self) -> Sequence[Unit]:
        """All units in document order."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings of reading; after `render` also the translations that could not be written."""

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """Write the document with these translations.

        Args:
            translations: new pieces by index of the unit; other units stay unchanged. A unit whose pieces are equal to its own
                stays byte for byte. The codes must be the unit's own, each exactly once, opening before closing.

        Raises:
            DocumentError: a character cannot be represented in the document's encoding.
        """


@dataclass(frozen=True)
class FormatInfo:
    """Name, suffixes and media types of a format, and its reader."""

    name: str
    reader: str  # "module:function" in `formats`, imported on first use
    suffixes: tuple[str, ...]  # ends of the names of files
    mime_types: tuple[str, ...]  # the preferred one first
    zipped: bool = False  # a zip archive, not text
    sign: bytes = b""  # near the start of its files, if those of other formats have the same suffix

    def may_be(self, file: Path) -> bool:
        """Return False if a file with the suffix of this format is another one's, such as TypeScript's .ts beside Qt's."""
        if not self.sign:
            return True
        with suppress(OSError), file.open("rb") as stream:
            return self.sign in stream.read(_LOOKED_AT)
        return True  # reading it reports the error

    def read(self, data: bytes, options: ReadOptions) -> Document:
        """Parse a document. Raises DocumentError: the document is damaged, or an option cannot be used."""
        module, _, function = self.reader.partition(":")
        document: Document = getattr(importlib.import_module(f"triptych_documents.formats.{module}"), function)(data, options)
        return document


_LOOKED_AT = 4_096  # bytes
_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_OASIS = "application/vnd.oasis.opendocument"

FORMATS = (
    FormatInfo("text", "plain:read", (".txt", ".text"), ("text/plain",)),
    FormatInfo("markdown", "markdown.reader:read", (".md", ".markdown", ".mdx"), ("text/markdown",)),
    FormatInfo("html", "html.reader:read", (".html", ".htm", ".xhtml"), ("text/html", "application/xhtml+xml")),
    FormatInfo(
        "docx",
        "docx.reader:read",
        (".docx", ".docm", ".dotx", ".dotm"),
        (f"{_OPEN_XML}.wordprocessingml.document",),
        zipped=True,
    ),
    FormatInfo(
        "pptx",
        "pptx:read",
        (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"),
        (f"{_OPEN_XML}.presentationml.presentation",),
        zipped=True,
    ),
    FormatInfo("xlsx", "xlsx:read", (".xlsx", ".xlsm", ".xltx", ".xltm"), (f"{_OPEN_XML}.spreadsheetml.sheet",), zipped=True),
    FormatInfo("odt", "opendocument:read", (".odt", ".ott"), (f"{_OASIS}.text",), zipped=True),
    FormatInfo("odp", "opendocument:read", (".odp", ".otp"), (f"{_OASIS}.presentation",), zipped=True),
    FormatInfo("ods", "opendocument:read", (".ods", ".ots"), (f"{_OASIS}.spreadsheet",), zipped=True),
    FormatInfo("epub", "epub:read", (".epub",), ("application/epub+zip",), zipped=True),
    FormatInfo("srt", "subtitles:read_srt", (".srt",), ("application/x-subrip",)),
    FormatInfo("vtt", "subtitles:read_vtt", (".vtt",), ("text/vtt",)),
    FormatInfo("po", "po.reader:read", (".po", ".pot"), ("text/x-gettext-translation",)),
    FormatInfo("xliff", "xliff.reader:read", (".xlf", ".xliff"), ("application/xliff+xml", "application/x-xliff+xml")),
    FormatInfo("qt-ts", "linguist:read", (".ts",), ("text/vnd.trolltech.linguist", "application/x-linguist"), sign=b"<TS"),
    FormatInfo("json", "structured.json:read", (".json", ".arb"), ("application/json",)),
    FormatInfo("jsonl", "structured.json:read_lines", (".jsonl", ".ndjson"), ("application/jsonl", "application/x-ndjson")),
    FormatInfo("yaml", "structured.yaml:read", (".yaml", ".yml"), ("application/yaml", "text/yaml")),
    FormatInfo("android", "resources:read_android", ("strings.xml",), ("application/x-android-resources",)),
    FormatInfo("resx", "resources:read_resx", (".resx", ".resw"), ("application/x-microsoft-resx",)),
    FormatInfo("stringsdict", "resources:read_stringsdict", (".stringsdict",), ("application/x-apple-stringsdict",)),
    FormatInfo("xcstrings", "xcstrings:read", (".xcstrings",), ("application/x-apple-xcstrings",)),
    FormatInfo("properties", "properties:read_properties", (".properties",), ("text/x-java-properties",)),
    FormatInfo("strings", "properties:read_strings", (".strings",), ("text/x-apple-strings",)),
    FormatInfo("csv", "tabular:read_csv", (".csv",), ("text/csv",)),
    FormatInfo("tsv", "tabular:read_tsv", (".tsv", ".tab"), ("text/tab-separated-values",)),
)


def find_format(name: str = "", path: str = "", mime_type: str = "") -> FormatInfo:
    """Find a format by name, else by media type, else by the suffix of the path.

    Raises:
        UnknownFormatError: no format matches.
    """
    media = mime_type.partition(";")[0].strip().lower()
    name_of_file = PurePath(path).name.lower()
    for kind in FORMATS:
        if kind.name == name if name else media in kind.mime_types if media else name_of_file.endswith(kind.suffixes):
            return kind
    given = f"format {name!r}" if name else f"media type {media!r}" if media else f"{path!r}"
    known = ", ".join(kind.name for kind in FORMATS)
    raise UnknownFormatError(f"{given} is not a supported document; supported formats: {known}")
