"""XML members of zipped documents: where their paragraphs are, and the member with other text in them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.atoms import Atom, Style
from triptych_documents.formats.office.inline import Copy, Escape, Inline, Runs, inlined, written
from triptych_documents.formats.shared.xml import Kind, Token, XmlText, closings, decoded, tokens
from triptych_documents.unit import Piece, Unit

MAX_DEPTH = 256  # elements inside each other
MAX_PART = 64 * 2**20  # bytes of a member of XML
MAX_TAGS = 4_000_000  # of one: each takes more memory than it has bytes


class Tree:
    """The elements of an XML text, known by the index of the token that opens them.

    Args:
        text: as of `tokens`, which says what is raised.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: Sequence[Token] = tokens(text, max_depth=MAX_DEPTH)
        self._ends = closings(self.tokens)

    def end(self, element: int) -> int:
        """The token that closes it; itself where it is empty."""
        return self._ends[element]

    def span(self, element: int) -> tuple[int, int]:
        """Of the whole element."""
        return self.tokens[element].start, self.tokens[self._ends[element]].end

    def inside(self, element: int) -> tuple[int, int]:
        """Between its tags; empty and behind it where it is empty."""
        first, last = self.tokens[element], self.tokens[self._ends[element]]
        return (first.end, last.end if first is last else last.start)

    def nodes(self, element: int) -> Iterator[int]:
        """Its children: elements and everything else."""
        index, end = element + 1, self._ends[element]
        while index < end:
            yield index
            index = self._ends.get(index, index) + 1

    def children(self, element: int) -> Iterator[int]:
        """Elements alone."""
        return (index for index in self.nodes(element) if self.tokens[index].opens)

    def within(self, element: int) -> Iterator[int]:
        """All elements in it, at any depth, in order."""
        return (index for index in range(element + 1, self._ends[element]) if self.tokens[index].opens)

    def characters(self, element: int) -> str:
        """All text in it."""
        return "".join(token.text for token in self.tokens[element : self._ends[element]])

    def root(self) -> int:
        """The outermost element."""
        return next(index for index, token in enumerate(self.tokens) if token.opens)

    def tag(self, element: int) -> str:
        """The tag that opens it, as it is written."""
        return self.text[self.tokens[element].start : self.tokens[element].end]

    def raw(self, element: int) -> str:
        """As it is written."""
        start, end = self.span(element)
        return self.text[start:end]


@dataclass(frozen=True)
class Edit:
    """A change of a part.

    Args:
        start: of what is replaced.
        end: of it.
        write: what stands there now; gets the means to copy parts of what was there.
    """

    start: int
    end: int
    write: Callable[[Copy], str]


def constant(start: int, end: int, text: str) -> Edit:
    """This text in the place of another."""
    return Edit(start, end, lambda _: text)


@dataclass(frozen=True)
class Place:
    """Where a unit stands, and how other pieces are written there."""

    start: int
    end: int
    inline: Inline
    unit: Unit
    escape: Escape

    def edit(self, pieces: Sequence[Piece]) -> Edit:
        """To write these pieces."""
        return Edit(self.start, self.end, lambda copy: written(self.inline, pieces, Runs(self.escape, copy), self.unit.where))


@dataclass
class Part:
    """A member of XML.

    Args:
        name: of the member.
        xml: its text.
        tree: its elements.
        places: of units, in order.
        closing: changes that go along with any other.
    """

    name: str
    xml: XmlText
    tree: Tree
    places: list[Place] = field(default_factory=list)
    closing: list[Edit] = field(default_factory=list)

    def add(self, start: int, end: int, atoms: Sequence[Atom], escape: Escape, nested: bool = False) -> None:
        """A paragraph's content. Without text it is no unit.

        Args:
            start: of the content.
            end: of it.
            atoms: in it.
            escape: writes text.
            nested: codes may have other paragraphs in them: these are left out of what the codes are called.
        """
        if not any(atom.role is None and atom.text.strip() for atom in atoms):
            return
        inline = inlined(atoms, self._tag if nested else self._raw)
        unit = Unit(inline.pieces, f"{self.name}, paragraph {len(self.places) + 1}", keeps_space=True)
        if unit.text.strip():
            self.places.append(Place(start, end, inline, unit, escape))

    def add_text(self, element: int, style: Style, escape: Escape) -> None:
        """An element with nothing but text."""
        nodes = list(self.tree.nodes(element))
        if any(self.tree.tokens[index].kind is not Kind.TEXT for index in nodes):
            return
        start, end = self.tree.inside(element)
        text = self.tree.characters(element)
        self.add(start, end, [Atom(((style, start, end),), None, text)], escape)

    def render(self, edits: Iterable[Edit]) -> bytes:
        """The member with these changes."""
        return self.xml.encoded(_Copy(self.tree.text, sorted(edits, key=lambda edit: edit.start)).all())

    def _raw(self, atom: Atom) -> str:
        return "".join(self.tree.text[start:end] for _, start, end in atom.fragments)

    def _tag(self, atom: Atom) -> str:
        raw = self._raw(atom)
        return raw[: raw.find(">") + 1]


class _Copy:
    """A text with changes, which may stand inside each other."""

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


def opened(archive: Archive, name: str) -> Part:
    """A member of an archive.

    Raises:
        DamagedDocumentError: there is none, or it is not XML, or too large.
    """
    data = archive.read(name)
    if len(data) > MAX_PART:
        raise DamagedDocumentError(f"{len(data)} bytes of XML, of {MAX_PART} at most", name)
    if (tags := data.count(b"<")) > MAX_TAGS:
        raise DamagedDocumentError(f"{tags:,} tags, of {MAX_TAGS:,} at most", name)
    try:
        xml = decoded(data)
        return Part(name, xml, Tree(xml.text))
    except DamagedDocumentError as error:
        raise DamagedDocumentError(str(error), name) from error


def described(archive: Archive, name: str) -> list[Part]:
    """The member with the document's title and the like. Damaged or not there, it is left out: nobody needs it."""
    try:
        return [opened(archive, name)] if name in archive.names else []
    except DamagedDocumentError:
        return []


class ZippedDocument:
    """A document of several members.

    Args:
        archive: it.
        parts: those with text, in the order of their units.
        findings: of reading it.
    """

    def __init__(self, archive: Archive, parts: Sequence[Part], findings: Sequence[Finding]) -> None:
        self._archive, self._parts = archive, parts
        self.findings: tuple[Finding, ...] = tuple(findings)
        self._places = [(part, place) for part in parts for place in part.places]
        self.units: tuple[Unit, ...] = tuple(place.unit for _, place in self._places)

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See format.Document."""
        edits: dict[str, list[Edit]] = {}
        for index, pieces in translations.items():
            part, place = self._places[index]
            if tuple(pieces) != place.unit.pieces:
                edits.setdefault(part.name, []).append(place.edit(pieces))
        if not edits:
            return self._archive.replaced({})
        changed = ((part, edits.get(part.name, []) + part.closing) for part in self._parts)
        return self._archive.replaced({part.name: part.render(found) for part, found in changed if found})
