"""XML members of zipped documents: their element trees, paragraphs and changes."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.inline import PLAIN, Atom, Copy, Escape, Inline, inlined, written
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.formats.shared.xml import XmlTokenKind, XmlTree, decoded, encoded, written_text
from triptych_documents.unit import Piece, Role, Unit, changed

MAX_DEPTH = 256  # nested elements
MAX_PART = 64 * 2**20  # bytes of an XML member
MAX_TAGS = 4_000_000  # per member: a tag takes more memory than it has bytes
MOST_BASED = 11  # levels of styles that are based on each other, as in Word

_OASIS = "{urn:oasis:names:tc:opendocument:xmlns:"
_OPEN_XML = "{http://schemas.openxmlformats.org"  # transitional
_STRICT = "{http://purl.oclc.org/ooxml"
_PREFIXES = {
    f"{_OPEN_XML}/wordprocessingml/2006/main": "w",
    f"{_STRICT}/wordprocessingml/main": "w",
    f"{_OPEN_XML}/officeDocument/2006/math": "m",
    f"{_STRICT}/officeDocument/math": "m",
    f"{_OPEN_XML}/drawingml/2006/main": "a",
    f"{_STRICT}/drawingml/main": "a",
    f"{_OPEN_XML}/markup-compatibility/2006": "mc",
    f"{_OPEN_XML}/presentationml/2006/main": "p",
    f"{_STRICT}/presentationml/main": "p",
    f"{_OPEN_XML}/spreadsheetml/2006/main": "x",
    f"{_STRICT}/spreadsheetml/main": "x",
    f"{_OASIS}drawing:1.0": "draw",
    f"{_OASIS}office:1.0": "office",
    f"{_OASIS}text:1.0": "text",
    f"{_OASIS}style:1.0": "style",
    f"{_OASIS}xsl-fo-compatible:1.0": "fo",
    f"{_OASIS}manifest:1.0": "manifest",
    f"{_OASIS}meta:1.0": "meta",
    f"{_OASIS}table:1.0": "table",
    f"{_OASIS}presentation:1.0": "presentation",
    f"{_OASIS}container": "ocf",
    "{http://www.idpf.org/2007/opf": "opf",
    "{http://www.daisy.org/z3986/2005/ncx/": "ncx",
    "{http://purl.org/dc/elements/1.1/": "dc",
    "{http://openoffice.org/2009/office": "officeooo",
}


StyleT = TypeVar("StyleT")


def with_derived(styles: Collection[StyleT], parents: Mapping[StyleT, StyleT]) -> frozenset[StyleT]:
    """Return the styles, and those that are based on them; `parents` maps each style to the one that it is based on."""
    found = frozenset(styles)
    for _ in range(MOST_BASED):
        derived = {style for style, parent in parents.items() if parent in found and style not in found}
        if not derived:
            break
        found |= derived
    return found


def short(name: str) -> str:
    """Return a name with its usual prefix, such as `w:p` or `text:p`; unknown names unchanged."""
    namespace, _, local = name.rpartition("}")
    prefix = _PREFIXES.get(namespace)
    return f"{prefix}:{local}" if prefix else name


class Tree(XmlTree):
    """Element tree of a member, with short names."""

    def __init__(self, text: str) -> None:
        super().__init__(text, MAX_DEPTH)

    def name(self, element: int) -> str:
        return short(self.tokens[element].name)

    def attributes(self, element: int) -> dict[str, str]:
        return {short(name): value for name, value in self.tokens[element].attributes.items()}

    def contains(self, element: int, names: Collection[str]) -> bool:
        """Return whether any descendant has one of these names."""
        return any(self.name(inner) in names for inner in self.within(element))

    def found(self, names: Collection[str], skipped: Collection[str] = ()) -> Iterator[int]:
        """Yield the filled elements with these names, also nested ones, unless they are inside of a skipped element."""
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            name = short(token.name) if token.opens else ""
            if token.kind is XmlTokenKind.START and name in names:
                yield index
            index = self.end(index) + 1 if name in skipped else index + 1

    def pair(self, outer: int, content: int, properties: Collection[str]) -> tuple[Atom, Atom]:
        """Return an element as codes around its content, which follows its properties in the same or an inner element."""
        (start, end), (inner, behind) = self.span(outer), self.inside(content)
        inner = max([inner, *(self.span(child)[1] for child in self.children(content) if self.name(child) in properties)])
        return Atom(((None, start, inner),), Role.OPEN, pair=outer), Atom(((None, behind, end),), Role.CLOSE, pair=outer)


@dataclass(frozen=True)
class Edit:
    """A change of a span."""

    start: int  # start of the replaced span
    end: int
    write: Callable[[Copy], str]  # returns the new content; receives a function that copies spans of the source


def constant(start: int, end: int, text: str) -> Edit:
    return Edit(start, end, lambda _: text)


@dataclass(frozen=True)
class ParagraphSlot:
    """Place of a unit and its paragraph."""

    start: int
    end: int
    inline: Inline
    unit: Unit
    escape: Escape

    def edit(self, pieces: Sequence[Piece]) -> Edit:
        return Edit(self.start, self.end, lambda copy: written(self.inline, pieces, self.escape, copy, self.unit.where))


class UnitPlace(Protocol):
    """Place of a unit in a member."""

    @property
    def unit(self) -> Unit: ...

    def edit(self, pieces: Sequence[Piece]) -> Edit:
        """Return the change that writes a translation."""


class Part(Protocol):
    """A translatable member of the archive."""

    @property
    def name(self) -> str: ...

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def closing(self) -> Sequence[Edit]:
        """Changes to make if anything in the document is translated."""

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document; with `closing`."""


@dataclass(kw_only=True)
class TextPart:
    """A member of the archive that is one text; see Part."""

    name: str
    encoding: Encoding
    text: str
    places: list[UnitPlace] = field(default_factory=list)  # of the units, in order
    closing: list[Edit] = field(default_factory=list)

    @property
    def units(self) -> Sequence[Unit]:
        return [place.unit for place in self.places]

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        edits = [*(self.places[index].edit(pieces) for index, pieces in translations.items()), *self.closing]
        return encoded(_edited(self.text, sorted(edits, key=lambda edit: edit.start)), self.encoding)


@dataclass(kw_only=True)
class XmlPart(TextPart):
    """An XML member of the archive."""

    tree: Tree
    bound: UnitLimit | None  # limit on the units of the document; None: the member has none

    def add(self, start: int, end: int, atoms: Sequence[Atom], escape: Escape, nested: bool = False) -> None:
        """Add a paragraph, which is no unit without text. `nested`: its codes may contain other paragraphs."""
        if not any(atom.role is None and atom.text.strip() for atom in atoms):
            return
        inline = inlined(atoms, self._tag if nested else self._raw)
        unit = Unit(inline.pieces, f"{self.name}, paragraph {len(self.places) + 1}", keeps_space=True)
        if unit.text.strip():
            if self.bound is not None:
                self.bound.count()
            self.places.append(ParagraphSlot(start, end, inline, unit, escape))

    def add_text(self, element: int) -> None:
        """Add an element that contains nothing but text."""
        nodes = list(self.tree.nodes(element))
        if any(self.tree.tokens[index].kind is not XmlTokenKind.TEXT for index in nodes):
            return
        start, end = self.tree.inside(element)
        atom = Atom(((PLAIN, start, end),), None, self.tree.characters(element))
        self.add(start, end, [atom], lambda text, _: written_text(text))

    def _raw(self, atom: Atom) -> str:
        return "".join(self.text[start:end] for _, start, end in atom.fragments)

    def _tag(self, atom: Atom) -> str:
        raw = self._raw(atom)
        return raw[: raw.find(">") + 1]


def _edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with changes, which may be nested."""
    starts = [edit.start for edit in edits]

    def copied(start: int, end: int, index: int) -> str:
        parts: list[str] = []
        index = max(index, bisect_left(starts, start))
        while index < len(edits) and edits[index].start < end:
            edit = edits[index]
            index += 1
            if edit.start >= start:
                parts += (text[start : edit.start], edit.write(partial(copied, index=index)))
                start = edit.end
        return "".join((*parts, text[start:end]))

    return copied(0, len(text), 0)


def read_member(archive: Archive, name: str) -> bytes:
    """Unpack a member to be parsed. Raises DamagedDocumentError: it is missing, or too large."""
    return _checked(archive.read(name), name)


def _checked(data: bytes, name: str) -> bytes:
    if len(data) > MAX_PART:
        raise DamagedDocumentError(f"{len(data):,} bytes of XML, the maximum is {MAX_PART:,}", name)
    if (tags := data.count(b"<")) > MAX_TAGS:
        raise DamagedDocumentError(f"{tags:,} tags, the maximum is {MAX_TAGS:,}", name)
    return data


def opened(archive: Archive, name: str, bound: UnitLimit | None = None) -> XmlPart:
    """Parse a member of an archive. Raises DamagedDocumentError: it is missing, not XML, or too large."""
    return parsed(archive.read(name), name, bound)


def parsed(data: bytes, name: str, bound: UnitLimit | None = None) -> XmlPart:
    """Parse a member that is unpacked already; raises as `opened`."""
    _checked(data, name)
    try:
        text, encoding = decoded(data)
        return XmlPart(name=name, encoding=encoding, text=text, tree=Tree(text), bound=bound)
    except DamagedDocumentError as error:
        raise DamagedDocumentError(str(error), name) from error


def described(archive: Archive, name: str, bound: UnitLimit, target: OfficeLanguage | None) -> list[XmlPart]:
    """Parse the member with title, subject and language; empty if missing or damaged, because it is not essential."""
    try:
        return [describing(opened(archive, name, bound), target)]
    except DamagedDocumentError:
        return []


def describing(part: XmlPart, target: OfficeLanguage | None) -> XmlPart:
    """Add title and subject to the units of a part, and its language to what changes with them."""
    for element in part.tree.found({"dc:title", "dc:subject"}):
        part.add_text(element)
    if target is not None:
        part.closing += (constant(*part.tree.inside(element), target.tag) for element in part.tree.found({"dc:language"}))
    return part


def text_element(start: str, text: str) -> str:
    """Return an element such as `<w:t>` with a text, whose white space stays; `start` is the prefix with its colon."""
    kept = ' xml:space="preserve"' if text != text.strip() or "\n" in text or "  " in text else ""
    return f"<{start}t{kept}>{written_text(text)}</{start}t>"


def signatures(archive: Archive, prefix: str) -> list[Finding]:
    """Return a warning if the document is signed."""
    if not any(name.startswith(prefix) for name in archive.names):
        return []
    return [Finding(FindingKind.FORMAT, Severity.WARNING, "document", "signed; the signatures are not valid for a translation")]


class ZippedDocument:
    """A document of several members."""

    def __init__(self, archive: Archive, parts: Sequence[Part], findings: Sequence[Finding]) -> None:
        self._archive, self._parts = archive, parts
        self.findings: tuple[Finding, ...] = tuple(findings)
        self.units: tuple[Unit, ...] = tuple(unit for part in parts for unit in part.units)

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        new = changed(self.units, translations)
        members: dict[str, bytes] = {}
        first = 0
        for part in self._parts if new else ():
            after = first + len(part.units)
            found = {index - first: new[index] for index in range(first, after) if index in new}
            if found or part.closing:
                members[part.name] = part.render(found)
            first = after
        return self._archive.replaced(members)
