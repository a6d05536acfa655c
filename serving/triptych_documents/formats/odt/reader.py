"""OpenDocument texts (OASIS, OpenDocument 1.3: packages, part 2; elements, part 3).

Translated are the paragraphs and headings of content.xml, with those in tables, frames, notes, annotations and indexes, the
headers and footers of styles.xml, and the title and subject of meta.xml.
"""

from collections.abc import Iterator

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.docx.styles import prefix
from triptych_documents.formats.odt.spans import Paragraphs, escape_for
from triptych_documents.formats.odt.styles import PLAIN, Styles, default_language, in_language, short
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.parts import Edit, Part, Tree, ZippedDocument, constant, described, opened
from triptych_documents.formats.office.tongues import Tongue, tongue
from triptych_documents.formats.shared.xml import written_text

_TYPE, _MANIFEST, _CONTENT, _STYLES, _META = "mimetype", "META-INF/manifest.xml", "content.xml", "styles.xml", "meta.xml"
_TEXT = "application/vnd.oasis.opendocument.text"
_SAID = {"dc:title", "dc:subject"}


class Odt:
    """Reads ODT."""

    name = "odt"

    def read(self, data: bytes, options: ReadOptions) -> Document:
        """See format.Format."""
        archive = Archive(data)
        _check_type(archive)
        content = opened(archive, _CONTENT)
        others = [opened(archive, name) for name in (_STYLES,) if name in archive.names]
        parts = {part.name: part for part in (content, *others, *described(archive, _META))}
        styles = [parts[_STYLES].tree] if _STYLES in parts else []
        _paragraphs(content, Styles(*styles, content.tree))
        if _STYLES in parts:
            _paragraphs(parts[_STYLES], Styles(*styles))
        if _META in parts:
            _meta(parts[_META])
        _say_language(list(parts.values()), options)
        return ZippedDocument(archive, list(parts.values()), _signed(archive))


def _check_type(archive: Archive) -> None:
    if _CONTENT not in archive.names:
        raise DamagedDocumentError("a zip archive, but not an OpenDocument text")
    kind = archive.read(_TYPE).decode("ascii", "replace").strip() if _TYPE in archive.names else _TEXT
    if kind != _TEXT:
        raise UnknownFormatError(f"a document of the type {kind[:80]!a}; only texts (.odt) are read")
    if _MANIFEST in archive.names:
        tree = opened(archive, _MANIFEST).tree
        if any(short(token.name) == "manifest:encryption-data" for token in tree.tokens):
            raise DamagedDocumentError("it is encrypted with a password")


def _paragraphs(part: Part, styles: Styles) -> None:
    paragraphs = Paragraphs(part.tree, styles)
    for element in paragraphs.found():
        start, end = part.tree.inside(element)
        escape = escape_for(prefix(part.tree.tag(element)))
        part.add(start, end, paragraphs.atoms(element), escape, paragraphs.nested(element))


def _meta(part: Part) -> None:
    for element in _described(part.tree):
        if short(part.tree.tokens[element].name) in _SAID:
            part.add_text(element, PLAIN, lambda text, _: written_text(text))


def _described(tree: Tree) -> Iterator[int]:
    for group in tree.children(tree.root()):
        yield from tree.children(group)


def _say_language(parts: list[Part], options: ReadOptions) -> None:
    """The styles and the description of a translation are in its language."""
    target = tongue(options.target_language)
    if target is None:
        return
    known = next((found for part in parts if (found := default_language(part.tree))), "")
    source = tongue(options.source_language or known)
    for part in parts:
        part.closing += in_language(part.tree, source, target)
        if part.name == _META:
            part.closing += _described_language(part, target)


def _described_language(part: Part, target: Tongue) -> Iterator[Edit]:
    for element in _described(part.tree):
        start, end = part.tree.inside(element)
        if short(part.tree.tokens[element].name) == "dc:language" and start != end:
            yield constant(start, end, target.tag)


def _signed(archive: Archive) -> list[Finding]:
    if "META-INF/documentsignatures.xml" not in archive.names:
        return []
    return [Finding(FindingKind.FORMAT, Severity.WARNING, "document", "it is signed; signatures do not hold for a translation")]


FORMAT = Odt()
