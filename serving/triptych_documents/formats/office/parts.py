"""XML members of zipped documents: their element trees, paragraphs and changes."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.atoms import Atom, Style
from triptych_documents.formats.office.inline import Copy, Escape, Inline, RunWriter, inlined, written
from triptych_documents.formats.shared.xml import XmlText, XmlToken, XmlTokenKind, closings, decoded, tokens
from triptych_documents.unit import Piece, Unit

MAX_DEPTH = 256  # nested elements
MAX_PART = 64 * 2**20  # bytes of an XML member
MAX_TAGS = 4_000_000  # per member: a tag takes more memory than it has bytes


class Tree:
    """Element tree of an XML text; an element is identified by the index of its start token. Raises as `tokens` does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: Sequence[XmlToken] = tokens(text, max_depth=MAX_DEPTH)
        self._ends = closings(self.tokens)

    def end(self, element: int) -> int:
        """Return the index of the end token; the same index for an empty element."""
        return self._ends[element]

    def span(self, element: int) -> tuple[int, int]:
        return self.tokens[element].start, self.tokens[self._ends[element]].end

    def inside(self, element: int) -> tuple[int, int]:
        """Return the span between the tags; empty and after the tag for an empty element."""
        first, last = self.tokens[element], self.tokens[self._ends[element]]
        return (first.end, last.end if first is last else last.start)

    def nodes(self, element: int) -> Iterator[int]:
        """Yield children: elements and all other tokens."""
        index, end = element + 1, self._ends[element]
        while index < end:
            yield index
            index = self._ends.get(index, index) + 1

    def children(self, element: int) -> Iterator[int]:
        return (index for index in self.nodes(element) if self.tokens[index].opens)

    def within(self, element: int) -> Iterator[int]:
        """Yield all descendant elements in order."""
        return (index for index in range(element + 1, self._ends[element]) if self.tokens[index].opens)

    def found(self, wanted: Callable[[str], bool], skipped: Callable[[str], bool]) -> Iterator[int]:
        """Yield the filled elements with a wanted name, also nested ones, unless they are inside of a skipped element."""
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            if token.kind is XmlTokenKind.START and wanted(token.name):
                yield index
            index = self.end(index) + 1 if token.opens and skipped(token.name) else index + 1

    def characters(self, element: int) -> str:
        return "".join(token.text for token in self.tokens[element : self._ends[element]])

    def root(self) -> int:
        return next(index for index, token in enumerate(self.tokens) if token.opens)

    def tag(self, element: int) -> str:
        return self.text[self.tokens[element].start : self.tokens[element].end]

    def raw(self, element: int) -> str:
        start, end = self.span(element)
        return self.text[start:end]


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
        return Edit(
            self.start, self.end, lambda copy: written(self.inline, pieces, RunWriter(self.escape, copy), self.unit.where)
        )


@dataclass
class XmlPart:
    """An XML member of the archive."""

    name: str
    xml: XmlText
    tree: Tree
    places: list[ParagraphSlot] = field(default_factory=list)  # units in order
    closing: list[Edit] = field(default_factory=list)  # changes to make along with any other

    def add(self, start: int, end: int, atoms: Sequence[Atom], escape: Escape, nested: bool = False) -> None:
        """Add a paragraph, which is no unit without text. `nested`: its codes may contain other paragraphs."""
        if not any(atom.role is None and atom.text.strip() for atom in atoms):
            return
        inline = inlined(atoms, self._tag if nested else self._raw)
        unit = Unit(inline.pieces, f"{self.name}, paragraph {len(self.places) + 1}", keeps_space=True)
        if unit.text.strip():
            self.places.append(ParagraphSlot(start, end, inline, unit, escape))

    def add_text(self, element: int, style: Style, escape: Escape) -> None:
        """Add an element that contains nothing but text."""
        nodes = list(self.tree.nodes(element))
        if any(self.tree.tokens[index].kind is not XmlTokenKind.TEXT for index in nodes):
            return
        start, end = self.tree.inside(element)
        text = self.tree.characters(element)
        self.add(start, end, [Atom(((style, start, end),), None, text)], escape)

    def render(self, edits: Iterable[Edit]) -> bytes:
        return self.xml.encoded(_Copy(self.tree.text, sorted(edits, key=lambda edit: edit.start)).all())

    def _raw(self, atom: Atom) -> str:
        return "".join(self.tree.text[start:end] for _, start, end in atom.fragments)

    def _tag(self, atom: Atom) -> str:
        raw = self._raw(atom)
        return raw[: raw.find(">") + 1]


class _Copy:
    """Copies a text with changes, which may be nested."""

    def __init__(self, text: str, edits: Sequence[Edit]) -> None:
        self._text, self._edits = text, edits
        self._starts = [edit.start for edit in edits]

    def all(self) -> str:
        return self._span(0, len(self._text), 0)

    def _span(self, start: int, end: int, index: int) -> str:
        parts: list[str] = []
        index = max(index, bisect_left(self._starts, start))
        while index < len(self._edits) and self._edits[index].start < end:
            edit = self._edits[index]
            index += 1
            if edit.start >= start:
                parts += (self._text[start : edit.start], self._written(edit, index))
                start = edit.end
        return "".join((*parts, self._text[start:end]))

    def _written(self, edit: Edit, inner: int) -> str:
        return edit.write(lambda start, end: self._span(start, end, inner))


def opened(archive: Archive, name: str) -> XmlPart:
    """Parse a member of an archive. Raises DamagedDocumentError: it is missing, not XML, or too large."""
    data = archive.read(name)
    if len(data) > MAX_PART:
        raise DamagedDocumentError(f"{len(data):,} bytes of XML, the maximum is {MAX_PART:,}", name)
    if (tags := data.count(b"<")) > MAX_TAGS:
        raise DamagedDocumentError(f"{tags:,} tags, the maximum is {MAX_TAGS:,}", name)
    try:
        xml = decoded(data)
        return XmlPart(name, xml, Tree(xml.text))
    except DamagedDocumentError as error:
        raise DamagedDocumentError(str(error), name) from error


def described(archive: Archive, name: str) -> list[XmlPart]:
    """Parse the member with the document's title; empty if missing or damaged, because it is not essential."""
    try:
        return [opened(archive, name)] if name in archive.names else []
    except DamagedDocumentError:
        return []


def signatures(archive: Archive, prefix: str) -> list[Finding]:
    """Return a warning if the document is signed."""
    if not any(name.startswith(prefix) for name in archive.names):
        return []
    return [Finding(FindingKind.FORMAT, Severity.WARNING, "document", "signed; the signatures are not valid for a translation")]


class ZippedDocument:
    """A document of several members."""

    def __init__(self, archive: Archive, parts: Sequence[XmlPart], findings: Sequence[Finding]) -> None:
        self._archive, self._parts = archive, parts
        self.findings: tuple[Finding, ...] = tuple(findings)
        self._places = [(part, place) for part in parts for place in part.places]
        self.units: tuple[Unit, ...] = tuple(place.unit for _, place in self._places)

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        edits: dict[str, list[Edit]] = {}
        for index, pieces in translations.items():
            part, place = self._places[index]
            if tuple(pieces) != place.unit.pieces:
                edits.setdefault(part.name, []).append(place.edit(pieces))
        if not edits:
            return self._archive.replaced({})
        changed = ((part, edits.get(part.name, []) + part.closing) for part in self._parts)
        return self._archive.replaced({part.name: part.render(found) for part, found in changed if found})
