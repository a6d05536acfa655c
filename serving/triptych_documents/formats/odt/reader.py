"""ODT reader (OASIS, OpenDocument 1.3: packages, part 2; elements, part 3).

Translates the paragraphs and headings of content.xml, including tables, frames, notes, annotations and indexes; the headers and
footers of styles.xml; and the title and subject of meta.xml.
"""

from collections.abc import Iterator

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.odt.spans import OdtParagraphs, escape_for
from triptych_documents.formats.odt.styles import PLAIN, OdtStyles, default_language, in_language, short
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.languages import OfficeLanguage, office_language
from triptych_documents.formats.office.parts import Edit, Tree, XmlPart, ZippedDocument, constant, described, opened, signatures
from triptych_documents.formats.shared.xml import prefix, written_text

_TYPE, _MANIFEST, _CONTENT, _STYLES, _META = "mimetype", "META-INF/manifest.xml", "content.xml", "styles.xml", "meta.xml"
_TEXT = "application/vnd.oasis.opendocument.text"
_SAID = {"dc:title", "dc:subject"}


def read(data: bytes, options: ReadOptions) -> Document:
    """See Format.read."""
    archive = Archive(data)
    _check_type(archive)
    content = opened(archive, _CONTENT)
    others = [opened(archive, name) for name in (_STYLES,) if name in archive.names]
    parts = {part.name: part for part in (content, *others, *described(archive, _META))}
    styles = [parts[_STYLES].tree] if _STYLES in parts else []
    _paragraphs(content, OdtStyles(*styles, content.tree))
    if _STYLES in parts:
        _paragraphs(parts[_STYLES], OdtStyles(*styles))
    if _META in parts:
        _meta(parts[_META])
    _say_language(list(parts.values()), options)
    return ZippedDocument(archive, list(parts.values()), signatures(archive, "META-INF/documentsignatures.xml"))


def _check_type(archive: Archive) -> None:
    if _CONTENT not in archive.names:
        raise DamagedDocumentError("a zip archive, but not an OpenDocument text")
    kind = archive.read(_TYPE).decode("ascii", "replace").strip() if _TYPE in archive.names else _TEXT
    if kind != _TEXT:
        raise UnknownFormatError(f"document type {kind[:80]!a} is not supported, only texts (.odt)")
    if _MANIFEST in archive.names:
        tree = opened(archive, _MANIFEST).tree
        if any(short(token.name) == "manifest:encryption-data" for token in tree.tokens):
            raise DamagedDocumentError("encrypted with a password")


def _paragraphs(part: XmlPart, styles: OdtStyles) -> None:
    paragraphs = OdtParagraphs(part.tree, styles)
    for element in paragraphs.found():
        start, end = part.tree.inside(element)
        escape = escape_for(prefix(part.tree.tag(element)))
        part.add(start, end, paragraphs.atoms(element), escape, paragraphs.nested(element))


def _meta(part: XmlPart) -> None:
    for element in _described(part.tree):
        if short(part.tree.tokens[element].name) in _SAID:
            part.add_text(element, PLAIN, lambda text, _: written_text(text))


def _described(tree: Tree) -> Iterator[int]:
    for group in tree.children(tree.root()):
        yield from tree.children(group)


def _say_language(parts: list[XmlPart], options: ReadOptions) -> None:
    """Set the language of the styles and of the description to that of the translation."""
    target = office_language(options.target_language)
    if target is None:
        return
    known = next((found for part in parts if (found := default_language(part.tree))), "")
    source = office_language(options.source_language or known)
    for part in parts:
        part.closing += in_language(part.tree, source, target)
        if part.name == _META:
            part.closing += _described_language(part, target)


def _described_language(part: XmlPart, target: OfficeLanguage) -> Iterator[Edit]:
    for element in _described(part.tree):
        start, end = part.tree.inside(element)
        if short(part.tree.tokens[element].name) == "dc:language" and start != end:
            yield constant(start, end, target.tag)
