"""EPUB reader (W3C, EPUB 3.3, and IDPF, EPUB 2.0.1).

Translates the pages in reading order, other pages such as the table of contents, that of EPUB 2 (NCX), and the book's title and
subject.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import unquote

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.html import reader as html
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.languages import office_language
from triptych_documents.formats.office.parts import (
    Edit,
    Part,
    Tree,
    ZippedDocument,
    describing,
    opened,
    read_member,
    signatures,
)
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.unit import Piece, Unit

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = {"application/xhtml+xml", "text/html", "text/x-oeb1-document"}
_NCX = "application/x-dtbncx+xml"


@dataclass(frozen=True)
class _Page:
    """A page as a part of the book."""

    name: str
    document: Document
    closing: Sequence[Edit] = ()

    @cached_property
    def units(self) -> Sequence[Unit]:
        return [replace(unit, where=f"{self.name}, {unit.where}") for unit in self.document.units]

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        return self.document.render(translations)


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    archive, bound = Archive(data), UnitLimit(options)
    if _CONTAINER not in archive.names:
        raise DamagedDocumentError("a zip archive, but not an EPUB")
    name = _package(opened(archive, _CONTAINER).tree)
    book, encrypted = opened(archive, name, bound), set(_encrypted(archive))
    parts: list[Part] = []
    for member, kind in _items(book.tree, posixpath.dirname(name)):
        if member in encrypted:
            raise DamagedDocumentError("encrypted (digital rights management)", member)
        if member not in archive.names:
            continue
        if kind == _NCX:
            contents = opened(archive, member, bound)
            for element in contents.tree.found({"ncx:text"}, {"ncx:docAuthor"}):
                contents.add_text(element)
            parts.append(contents)
        else:
            page = _Page(member, html.read(read_member(archive, member), replace(options, encoding="")))
            for _ in page.units:
                bound.count()
            parts.append(page)
    parts.append(describing(book, office_language(options.target_language)))
    return ZippedDocument(archive, parts, signatures(archive, "META-INF/signatures.xml"))


def _package(container: Tree) -> str:
    """Return the member that describes the book."""
    for element in container.within(container.root()):
        if container.name(element) == "ocf:rootfile":
            return container.attributes(element).get("full-path", "")
    raise DamagedDocumentError("names no book", _CONTAINER)


def _encrypted(archive: Archive) -> Iterator[str]:
    if _ENCRYPTION in archive.names:
        tree = opened(archive, _ENCRYPTION).tree
        for element in tree.within(tree.root()):
            yield unquote(tree.attributes(element).get("URI", ""))


def _items(package: Tree, folder: str) -> Iterator[tuple[str, str]]:
    """Yield members and media types of pages and tables of contents, those in reading order first."""
    items: dict[str, tuple[str, str]] = {}
    spine: list[str] = []
    for element in package.within(package.root()):
        attributes = package.attributes(element)
        if package.name(element) == "opf:item" and attributes.get("media-type") in {*_PAGES, _NCX}:
            member = posixpath.normpath(posixpath.join(folder, unquote(attributes.get("href", ""))))
            items[attributes.get("id", member)] = member, attributes["media-type"]
        elif package.name(element) == "opf:itemref":
            spine.append(attributes.get("idref", ""))
    yield from dict.fromkeys(items[ident] for ident in (*spine, *items) if ident in items)
