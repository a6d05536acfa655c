"""ODT reader (OASIS, OpenDocument 1.3: packages, part 2; elements, part 3).

Translates the paragraphs and headings of content.xml, including tables, frames, notes, annotations and indexes; the headers and
footers of styles.xml; and the title and subject of meta.xml.
"""

import re
from collections.abc import Iterator

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.odt.styles import PLAIN, OdtStyles, attributes_of, default_language, in_language, short
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.atoms import SOFT_HYPHEN, Atom, Style
from triptych_documents.formats.office.inline import Escape
from triptych_documents.formats.office.languages import OfficeLanguage, office_language
from triptych_documents.formats.office.parts import Edit, Tree, XmlPart, ZippedDocument, constant, described, opened, signatures
from triptych_documents.formats.shared.xml import XmlTokenKind, prefix, written_text
from triptych_documents.unit import Role

_PARAGRAPHS = {"text:p", "text:h"}
_UNTOUCHED = {"text:tracked-changes", "office:forms", "office:scripts", "office:event-listeners"}
_DROPPED = {"text:soft-page-break"}  # recreated by the application
_AROUND = {"text:a", "text:meta"}
_PROPERTIES = {"office:event-listeners"}
_BREAKS = {"text:tab": "\t", "text:line-break": "\n"}
_UNSHOWN = {*_PARAGRAPHS, "text:note", "text:script", "text:hidden-text", "text:hidden-paragraph"}
_IDENTS = ("text:name", "text:id", "text:change-id", "office:name")
_MOST_SPACES = 1_000  # per element; more become a code
_WHITE = re.compile("[ \t\r\n]+")


class OdtParagraphs:
    """Reads the paragraphs of a part."""

    def __init__(self, tree: Tree, styles: OdtStyles) -> None:
        self._tree, self._styles = tree, styles
        self._space = True  # white space here is dropped

    def found(self) -> Iterator[int]:
        """Find all paragraphs and headings that are not deleted, nested ones after their enclosing paragraph."""
        return self._tree.found(lambda name: short(name) in _PARAGRAPHS, lambda name: short(name) in _UNTOUCHED)

    def atoms(self, paragraph: int) -> list[Atom]:
        self._space = True
        return list(self._atoms(paragraph, PLAIN))

    def nested(self, element: int) -> bool:
        return any(self._name(inner) in _PARAGRAPHS for inner in self._tree.within(element))

    def _name(self, element: int) -> str:
        return short(self._tree.tokens[element].name)

    def _atoms(self, element: int, style: Style) -> Iterator[Atom]:
        for child in self._tree.nodes(element):
            token = self._tree.tokens[child]
            if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
                yield Atom(((style, token.start, token.end),), None, self._collapsed(token.text))
            elif token.opens:
                yield from self._element(child, self._name(child), style)

    def _collapsed(self, text: str) -> str:
        """Collapse white space, and drop it after white space (part 3, 6.1.2)."""
        text = _WHITE.sub(" ", text).replace(SOFT_HYPHEN, "")
        text = text[1:] if self._space and text.startswith(" ") else text
        self._space = text.endswith(" ") if text else self._space
        return text

    def _element(self, element: int, name: str, style: Style) -> Iterator[Atom]:
        filled = self._tree.end(element) != element
        if name == "text:span":
            yield from self._atoms(element, self._styles.within(style, self._tree, element))
        elif name == "text:ruby":
            yield from self._ruby(element, style)
        elif name in _AROUND and filled:
            yield from self._pair(element, style)
        elif name not in _DROPPED and name not in _PROPERTIES:
            yield self._code(element, name, style)

    def _pair(self, element: int, style: Style) -> Iterator[Atom]:
        (start, end), (inner, behind) = self._tree.span(element), self._tree.inside(element)
        properties = [child for child in self._tree.children(element) if self._name(child) in _PROPERTIES]
        inner = max([inner, *(self._tree.span(child)[1] for child in properties)])
        yield Atom(((None, start, inner),), Role.OPEN, pair=element)
        yield from self._atoms(element, style)
        yield Atom(((None, behind, end),), Role.CLOSE, pair=element)

    def _ruby(self, element: int, style: Style) -> Iterator[Atom]:
        """Yield the base text; the readings above it belong to the source language and are dropped."""
        for child in self._tree.children(element):
            if self._name(child) == "text:ruby-base":
                yield from self._atoms(child, style)

    def _code(self, element: int, name: str, style: Style) -> Atom:
        span = self._tree.span(element)
        if name == "text:s" and (spaces := self._spaces(element)):
            self._space = False
            return Atom(((style, *span),), None, spaces)
        side = self._side(element, name)
        if side is not None:
            return Atom(((None, *span),), side[0], pair=side[1:], soft=True)
        shown = _BREAKS.get(name, "") or self._shown(element, name)
        self._space = self._space and not shown
        return Atom(((style, *span),), Role.ALONE, shown, fixed=name in _BREAKS)

    def _spaces(self, element: int) -> str:
        attributes = attributes_of(self._tree, element)
        count = attributes.get("text:c", "1")
        return " " * int(count) if count.isdecimal() and len(count) < 5 and int(count) <= _MOST_SPACES else ""

    def _side(self, element: int, name: str) -> tuple[Role, str, str] | None:
        """Return role, name and identifier of a mark that starts or ends a range."""
        for ending, role in (("-start", Role.OPEN), ("-end", Role.CLOSE)):
            if name.startswith("text:") and name.endswith(ending):
                attributes = attributes_of(self._tree, element)
                ident = next((attributes[key] for key in _IDENTS if key in attributes), "")
                return role, name.removesuffix(ending), ident
        return None

    def _shown(self, element: int, name: str) -> str:
        if not name.startswith("text:") or name in _UNSHOWN or self.nested(element):
            return ""
        return self._tree.characters(element)


def escape_for(start: str) -> Escape:
    """Return a function that writes text into paragraphs whose elements have this prefix, such as "text:".

    A space after a word is written as such; all others are elements, because white space collapses.
    """

    def escape(text: str, word: bool) -> str:
        out: list[str] = []
        at = 0
        for found in _WHITE.finditer(text):
            out.append(written_text(text[at : found.start()]))
            count = len(found[0])
            if found.start() or word:
                out.append(" ")
                count -= 1
            out.append(_space_element(start, count))
            at = found.end()
        return "".join((*out, written_text(text[at:])))

    return escape


def _space_element(start: str, count: int) -> str:
    return "" if not count else f"<{start}s/>" if count == 1 else f'<{start}s {start}c="{count}"/>'


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
