"""DOCX reader (ECMA-376, Office Open XML: packages, part 2; WordprocessingML, part 1, 11 and 17).

Translates the paragraphs of the main document, headers, footers, footnotes, endnotes and comments, including tables and text
boxes; diagrams and chart titles; and the document's title and subject.
"""

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.docx.runs import DocxParagraphs, Fields, escape_for
from triptych_documents.formats.docx.styles import DocxStyles, short
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.atoms import Atom, Style
from triptych_documents.formats.office.inline import Escape
from triptych_documents.formats.office.languages import OfficeLanguage, office_language
from triptych_documents.formats.office.parts import Tree, XmlPart, ZippedDocument, described, opened, signatures
from triptych_documents.formats.shared.xml import XmlTokenKind, prefix, with_attribute, written_text
from triptych_documents.unit import Role

_DRAWING_PROPERTIES = {"a:pPr", "a:endParaRPr"}
_UNSEEN = {"lang", "altLang", "dirty", "err", "smtClean", "noProof", "bmk", "kern"}


class Drawings:
    """Reads the paragraphs of a part."""

    def __init__(self, tree: Tree, target: OfficeLanguage | None) -> None:
        self._tree, self._target = tree, target

    def found(self) -> Iterator[int]:
        tokens = enumerate(self._tree.tokens)
        return (index for index, token in tokens if token.kind is XmlTokenKind.START and short(token.name) == "a:p")

    def content(self, paragraph: int) -> tuple[int, int]:
        """Return the span between the paragraph properties and the end properties."""
        start, end = self._tree.inside(paragraph)
        for child in self._tree.children(paragraph):
            name = self._name(child)
            start = self._tree.span(child)[1] if name == "a:pPr" else start
            end = self._tree.span(child)[0] if name == "a:endParaRPr" else end
        return start, end

    def atoms(self, paragraph: int) -> Iterator[Atom]:
        for child in self._tree.children(paragraph):
            name = self._name(child)
            if name == "a:r":
                yield from self._run(child)
            elif name not in _DRAWING_PROPERTIES:
                shown = "\n" if name == "a:br" else self._tree.characters(child)
                yield Atom(((None, *self._tree.span(child)),), Role.ALONE, shown, fixed=name == "a:br")

    def _name(self, element: int) -> str:
        return short(self._tree.tokens[element].name)

    def _run(self, run: int) -> Iterator[Atom]:
        properties = next((child for child in self._tree.children(run) if self._name(child) == "a:rPr"), None)
        style = self._style(run, properties)
        for child in self._tree.children(run):
            if self._name(child) == "a:t":
                yield Atom(((style, *self._tree.span(child)),), None, self._tree.characters(child))

    def _style(self, run: int, properties: int | None) -> Style:
        start = prefix(self._tree.tag(run))
        if properties is None:
            return Style("", f"<{start}r>", f"</{start}r>")
        attributes = self._tree.tokens[properties].attributes
        raw, tag = self._tree.raw(properties), self._tree.tag(properties)
        localized = with_attribute(tag, "lang", self._target.tag) if self._target else tag
        seen = " ".join(f"{name}={value}" for name, value in sorted(attributes.items()) if name not in _UNSEEN)
        inked = attributes.get("u", "none") != "none" or attributes.get("strike", "noStrike") != "noStrike"
        return Style(seen + raw[len(tag) :], f"<{start}r>{localized}{raw[len(tag) :]}", f"</{start}r>", inked)


def _drawn_escape(start: str) -> Escape:
    """Return a function that writes text into runs whose elements have this prefix, such as "a:"."""
    return lambda text, _: f"<{start}t>{written_text(text)}</{start}t>"


_TYPES = "[Content_Types].xml"
_ROOT = "_rels/.rels"
_DRAWN = ("chart", "diagramData", "diagramDrawing")  # last parts of relationship types
_STORIES = ("footnotes", "endnotes", "comments", "header", "footer", *_DRAWN)
_CORE = {"{http://purl.org/dc/elements/1.1/}title", "{http://purl.org/dc/elements/1.1/}subject"}
_MAIN = "wordprocessingml.document.main+xml"
_PLAIN = Style("", "", "")


def read(data: bytes, options: ReadOptions) -> Document:
    """See Format.read."""
    archive = Archive(data)
    relations = list(_relations(archive, ""))
    main = next((target for kind, target in relations if kind == "officeDocument"), "word/document.xml")
    _check_type(archive, main)
    target = office_language(options.target_language)
    stories = {name: kind for kind, name in _relations(archive, main) if kind in _STORIES and name in archive.names}
    names = [main, *sorted(stories, key=lambda name: _STORIES.index(stories[name]))]
    parts = [(_drawn if stories.get(name) in _DRAWN else _story)(archive, name, target) for name in dict.fromkeys(names)]
    core = next((name for kind, name in relations if kind == "core-properties"), "")
    parts += described(archive, core)
    _properties(parts[-1])
    return ZippedDocument(archive, parts, signatures(archive, "_xmlsignatures/"))


def _relations(archive: Archive, part: str) -> Iterator[tuple[str, str]]:
    """Yield a part's relationships inside of the package: last part of the type, and the member."""
    folder, name = posixpath.split(part)
    member = posixpath.join(folder, "_rels", f"{name}.rels") if part else _ROOT
    if member not in archive.names:
        return
    tree = opened(archive, member).tree
    for element in tree.children(tree.root()):
        attributes = tree.tokens[element].attributes
        if attributes.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, unquote(attributes.get("Target", ""))))
            yield attributes.get("Type", "").rpartition("/")[2], target.lstrip("/")


def _check_type(archive: Archive, main: str) -> None:
    if _TYPES not in archive.names or main not in archive.names:
        raise DamagedDocumentError("a zip archive, but not a Word document")
    tree = opened(archive, _TYPES).tree
    kinds = [tree.tokens[element].attributes for element in tree.children(tree.root())]
    named = (kind for kind in kinds if kind.get("PartName", "").lower() == f"/{main}".lower())
    found = next(named, {}).get("ContentType", "")
    if found and not found.endswith(_MAIN):
        raise UnknownFormatError(f"document type {found!r} is not supported, only Word documents without macros (.docx)")


def _story(archive: Archive, name: str, target: OfficeLanguage | None) -> XmlPart:
    part = opened(archive, name)
    paragraphs = DocxParagraphs(part.tree, DocxStyles(part.tree, target))
    stories: list[tuple[int, Fields]] = [(len(part.tree.tokens), Fields())]
    for element in paragraphs.found():
        while element >= stories[-1][0]:
            stories.pop()
        nested = paragraphs.nested(element)
        escape = escape_for(prefix(part.tree.tag(element)))
        part.add(*paragraphs.content(element), paragraphs.atoms(element, stories[-1][1]), escape, nested)
        if nested:
            stories.append((part.tree.end(element), Fields()))
    return part


def _drawn(archive: Archive, name: str, target: OfficeLanguage | None) -> XmlPart:
    part = opened(archive, name)
    drawings = Drawings(part.tree, target)
    for element in drawings.found():
        escape = _drawn_escape(prefix(part.tree.tag(element)))
        part.add(*drawings.content(element), list(drawings.atoms(element)), escape)
    return part


def _properties(part: XmlPart) -> None:
    """Add the document's title and subject."""
    for element in part.tree.children(part.tree.root()):
        if part.tree.tokens[element].name in _CORE:
            part.add_text(element, _PLAIN, lambda text, _: written_text(text))
