"""Reader of OpenDocument texts, presentations and spreadsheets (OASIS, OpenDocument 1.3: packages, part 2; elements, part 3).

Translates the paragraphs and headings of content.xml, including tables, frames, notes, annotations and indexes, and of embedded
objects such as charts; those of styles.xml, as of headers, footers and master slides; and the title and subject of meta.xml.
Cells with numbers, dates and formulas stay.
"""

import re
from collections.abc import Iterator

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.inline import PLAIN, SOFT_HYPHEN, Atom, Escape, Style
from triptych_documents.formats.office.languages import OfficeLanguage, office_language
from triptych_documents.formats.office.parts import (
    Edit,
    Tree,
    XmlPart,
    ZippedDocument,
    constant,
    described,
    opened,
    signatures,
    with_derived,
)
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.formats.shared.xml import XmlTokenKind, attribute_spans, prefix, with_attribute, written_text
from triptych_documents.unit import Role

# Styles (part 3, 16.27 and 20).
_UNSEEN = {"officeooo:rsid", "officeooo:paragraph-rsid"}
_LANGUAGES = ("language", "country", "script", "rfc-language-tag")  # also with -asian, -complex; in fo: and style:
_INKED = ("style:text-underline-style", "style:text-line-through-style", "style:text-overline-style", "fo:background-color")
_SUFFIX = {"western": "", "asian": "-asian", "complex": "-complex"}
# Styles for code of LibreOffice and pandoc (`Source_Text`): families and names.
_CODE = {("paragraph", "Preformatted_20_Text")}
_CODE |= {("text", name) for name in ("Source_20_Text", "Source_Text", "Example", "Teletype", "User_20_Entry", "Variable")}
_NO_LANGUAGE = {"", "none", "zxx", "und", "mul"}


class OdfStyles:
    """Styles of spans by name; later trees take precedence."""

    def __init__(self, *trees: Tree) -> None:
        self._looks: dict[str, str] = {}
        self._inked: set[str] = set()
        self._parents: dict[tuple[str, str], tuple[str, str]] = {}  # families and names
        for tree in trees:
            for section in ("office:styles", "office:automatic-styles"):
                for style in _styles(tree, section):
                    self._learn(tree, style, named=section == "office:styles")
        self._code = with_derived(_CODE, self._parents)

    def is_code(self, tree: Tree, element: int) -> bool:
        """Return whether a paragraph or span has a style for code, or one that is based on it."""
        family = "text" if tree.name(element) == "text:span" else "paragraph"
        return (family, tree.attributes(element).get("text:style-name", "")) in self._code

    def within(self, outer: Style, tree: Tree, span: int) -> Style:
        """Return the style of the text directly inside of a span that is inside of another style."""
        attributes = tree.attributes(span)
        name = attributes.pop("text:style-name", "")
        tag = tree.tag(span)
        look = self._looks.get(name, name) + (tag if attributes else "")
        if not look:
            return outer
        closing = f"</{tag[1:-1].split(None, 1)[0]}>"
        return Style(f"{outer.key}<{look}>", outer.opening + tag, closing + outer.closing, outer.inked or name in self._inked)

    def _learn(self, tree: Tree, style: int, named: bool) -> None:
        attributes = tree.attributes(style)
        name, parent = attributes.get("style:name", ""), attributes.get("style:parent-style-name", "")
        family = attributes.get("style:family", "")
        self._parents[family, name] = family, parent
        if family != "text":
            return
        properties = dict(_properties(tree, style))
        # The appearance of an automatic style; "" if it only sets a language or records an edit.
        look = " ".join((*([parent] if parent else []), *(f"{key}={value}" for key, value in sorted(properties.items()))))
        self._looks[name] = name if named else look
        if any(properties.get(key, "none") not in ("none", "transparent") for key in _INKED):
            self._inked.add(name)


def _styles(tree: Tree, section: str) -> Iterator[int]:
    for part in tree.children(tree.root()):
        if tree.name(part) == section:
            yield from tree.children(part)


def _properties(tree: Tree, style: int) -> Iterator[tuple[str, str]]:
    for child in tree.children(style):
        for name, value in tree.attributes(child).items():
            if name not in _UNSEEN and not name.rpartition(":")[2].startswith(_LANGUAGES):
                yield name, value


def _default_language(tree: Tree) -> str:
    """Return the language of the paragraphs, else of shapes or cells, according to the document's styles, "" if unknown."""
    found: dict[str, str] = {}
    for style in _styles(tree, "office:styles"):
        attributes = tree.attributes(style)
        languages = (tree.attributes(child).get("fo:language") for child in tree.children(style))
        if "style:name" not in attributes and (language := next(filter(None, languages), "")):
            found[attributes.get("style:family", "")] = language
    return next((found[family] for family in ("paragraph", "graphic", "table-cell") if family in found), "")


def _in_language(tree: Tree, source: OfficeLanguage | None, target: OfficeLanguage) -> Iterator[Edit]:
    """Yield edits that change styles from the source language (None: any) to the target language."""
    for index, token in enumerate(tree.tokens):
        if token.opens and tree.name(index) == "style:text-properties":
            tag = tree.tag(index)
            new = _tag_in_language(tag, source, target)
            if new != tag:
                yield constant(token.start, token.end, new)


def _tag_in_language(tag: str, source: OfficeLanguage | None, target: OfficeLanguage) -> str:
    spans = attribute_spans(tag)
    names = {name.rpartition(":")[2]: name for name in spans}
    language, country = (names.get(name + _SUFFIX[target.script]) for name in ("language", "country"))
    if language is None:
        return tag
    was = tag[slice(*spans[language])]
    same_script = source is not None and source.script == target.script
    if was in _NO_LANGUAGE or (same_script and source is not None and was != source.language):
        return tag
    new = with_attribute(tag, language, target.language.partition("-")[0])
    return with_attribute(new, country, target.country or "none") if country else new


_PARAGRAPHS = {"text:p", "text:h"}
# Plain texts: an index's title, which is written again when it is updated; headers and footers of slides.
_TEXTS = {"text:index-title-template", "presentation:header-decl", "presentation:footer-decl"}
_UNTOUCHED = {"text:tracked-changes", "office:forms", "office:scripts", "office:event-listeners"}
_DROPPED = {"text:soft-page-break"}  # recreated by the application
_AROUND = {"text:a", "text:meta"}
_PROPERTIES = {"office:event-listeners"}
_BREAKS = {"text:tab": "\t", "text:line-break": "\n"}
_UNSHOWN = {*_PARAGRAPHS, "text:note", "text:script", "text:hidden-text", "text:hidden-paragraph"}
_IDENTS = ("text:name", "text:id", "text:change-id", "office:name")
_MOST_SPACES = 1_000  # per element; more become a code
_WHITE = re.compile("[ \t\r\n]+")


class OdfParagraphs:
    """Reads the paragraphs of a part."""

    def __init__(self, tree: Tree, styles: OdfStyles) -> None:
        self._tree, self._styles = tree, styles
        self._space = True  # white space here is dropped

    def atoms(self, paragraph: int) -> list[Atom]:
        self._space = True
        return list(self._atoms(paragraph, PLAIN))

    def _atoms(self, element: int, style: Style) -> Iterator[Atom]:
        for child in self._tree.nodes(element):
            token = self._tree.tokens[child]
            if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
                yield Atom(((style, token.start, token.end),), None, self._collapsed(token.text))
            elif token.opens:
                yield from self._element(child, self._tree.name(child), style)

    def _collapsed(self, text: str) -> str:
        """Collapse white space, and drop it after white space (part 3, 6.1.2)."""
        text = _WHITE.sub(" ", text).replace(SOFT_HYPHEN, "")
        text = text[1:] if self._space and text.startswith(" ") else text
        self._space = text.endswith(" ") if text else self._space
        return text

    def _element(self, element: int, name: str, style: Style) -> Iterator[Atom]:
        filled = self._tree.end(element) != element
        if name == "text:span" and not self._styles.is_code(self._tree, element):
            yield from self._atoms(element, self._styles.within(style, self._tree, element))
        elif name == "text:ruby":
            yield from self._ruby(element, style)
        elif name in _AROUND and filled:
            yield from self._pair(element, style)
        elif name not in _DROPPED and name not in _PROPERTIES:
            yield self._code(element, name, style)

    def _pair(self, element: int, style: Style) -> Iterator[Atom]:
        start, end = self._tree.pair(element, element, _PROPERTIES)
        yield start
        yield from self._atoms(element, style)
        yield end

    def _ruby(self, element: int, style: Style) -> Iterator[Atom]:
        """Yield the base text; the readings above it belong to the source language and are dropped."""
        for child in self._tree.children(element):
            if self._tree.name(child) == "text:ruby-base":
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
        self._space = self._space and not shown and not self._ends_space(element, name)
        return Atom(((style, *span),), Role.ALONE, shown, fixed=name in _BREAKS)

    def _ends_space(self, element: int, name: str) -> bool:
        """Return whether white space behind an element stays, as LibreOffice does it: code, notes and drawings in the line."""
        anchor = self._tree.attributes(element).get("text:anchor-type", "as-char")
        return name in ("text:span", "text:note", "office:annotation") or (name.startswith("draw:") and anchor == "as-char")

    def _spaces(self, element: int) -> str:
        attributes = self._tree.attributes(element)
        count = attributes.get("text:c", "1")
        return " " * int(count) if count.isdecimal() and len(count) < 5 and int(count) <= _MOST_SPACES else ""

    def _side(self, element: int, name: str) -> tuple[Role, str, str] | None:
        """Return role, name and identifier of a mark that starts or ends a range."""
        for ending, role in (("-start", Role.OPEN), ("-end", Role.CLOSE)):
            if name.startswith("text:") and name.endswith(ending):
                attributes = self._tree.attributes(element)
                ident = next((attributes[key] for key in _IDENTS if key in attributes), "")
                return role, name.removesuffix(ending), ident
        return None

    def _shown(self, element: int, name: str) -> str:
        if not name.startswith("text:") or name in _UNSHOWN or self._tree.contains(element, _PARAGRAPHS):
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
_KIND = "application/vnd.oasis.opendocument."
_KINDS = ("text", "presentation", "spreadsheet")


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    archive, bound = Archive(data), UnitLimit(options)
    _check_type(archive)
    content = opened(archive, _CONTENT, bound)
    styles = [opened(archive, _STYLES, bound)] if _STYLES in archive.names else []
    target = office_language(options.target_language)
    description = described(archive, _META, bound, target)
    objects = [opened(archive, name, bound) for name in archive.names if name.endswith(f"/{_CONTENT}")]
    _paragraphs(content, OdfStyles(*(part.tree for part in styles), content.tree))
    for part in (*styles, *objects):
        _paragraphs(part, OdfStyles(part.tree))
    texts = [content, *styles, *objects]
    if target is not None:
        _say_language(texts, target, options)
    return ZippedDocument(archive, texts + description, signatures(archive, "META-INF/documentsignatures.xml"))


def _check_type(archive: Archive) -> None:
    if _CONTENT not in archive.names:
        raise DamagedDocumentError("a zip archive, but not an OpenDocument file")
    kind = archive.read(_TYPE).decode("ascii", "replace").strip() if _TYPE in archive.names else ""
    if kind and kind.removeprefix(_KIND).removesuffix("-template") not in _KINDS:
        raise UnknownFormatError(f"document type {kind[:80]!a} is not supported, only texts, presentations and spreadsheets")
    if _MANIFEST in archive.names:
        tree = opened(archive, _MANIFEST).tree
        if tree.contains(tree.root(), {"manifest:encryption-data"}):
            raise DamagedDocumentError("encrypted with a password")


def _paragraphs(part: XmlPart, styles: OdfStyles) -> None:
    """Add all paragraphs and headings that are not deleted, nested ones after their enclosing one; and titles of indexes."""
    paragraphs, values = OdfParagraphs(part.tree, styles), _values(part.tree)
    for element in part.tree.found(_PARAGRAPHS, _UNTOUCHED):
        escape = escape_for(prefix(part.tree.tag(element)))
        nested = part.tree.contains(element, _PARAGRAPHS)
        if element not in values and not styles.is_code(part.tree, element):
            part.add(*part.tree.inside(element), paragraphs.atoms(element), escape, nested)
    for element in part.tree.found(_TEXTS):
        part.add_text(element)


def _values(tree: Tree) -> set[int]:
    """Return the paragraphs that show the value of a cell: numbers, dates and results of formulas."""
    found: set[int] = set()
    for cell in tree.found({"table:table-cell"}):
        attributes = tree.attributes(cell)
        kinds = {value for name, value in attributes.items() if name.endswith("value-type")}
        if "table:formula" in attributes or kinds - {"string"}:
            found.update(tree.children(cell))
    return found


def _say_language(texts: list[XmlPart], target: OfficeLanguage, options: ReadOptions) -> None:
    """Set the language of the styles to that of the translation."""
    known = next((found for part in texts if (found := _default_language(part.tree))), "")
    source = office_language(options.source_language or known)
    for part in texts:
        part.closing += _in_language(part.tree, source, target)
