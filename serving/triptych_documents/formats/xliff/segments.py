"""Where an XLIFF document has sources, and where their targets stand or belong (XLIFF 1.2, sections 2.2 and 2.3; 2.1, 4.2)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.shared.xml import XML, Kind, Token, closings, tokens
from triptych_documents.formats.xliff.inline import Content

_NAMESPACE = "{urn:oasis:names:tc:xliff:document:"  # 1.0 has none, and many files of later versions do not either
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})  # states of targets that are copies of the source


@dataclass(frozen=True, slots=True)
class Languages:
    """The element that says them, and how."""

    holder: Token
    source_name: str
    target_name: str

    @property
    def source(self) -> str:
        return self.holder.attributes.get(self.source_name, "")

    @property
    def target(self) -> str:
        return self.holder.attributes.get(self.target_name, "")


@dataclass(frozen=True, slots=True)
class Hole:
    """What is translated as one: tokens from start up to end.

    Args:
        kept: its translation that is there, as the document writes it; None where there is none.
    """

    start: int
    end: int
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A source and the place of its target, as indices of tokens.

    Args:
        holder: the <trans-unit> or <segment>.
        source: its <source>.
        before: the element that a new <target> is put behind.
        pattern: the element whose content the target's is made after: <seg-source> or <source>.
        target: its <target>, if it has one.
        holes: of the pattern.
        where: for people.
        keeps_space: as xml:space says.
        approved: a person or a state says that it is final.
    """

    languages: Languages
    holder: int
    source: int
    before: int
    pattern: int
    target: int | None
    holes: tuple[Hole, ...]
    where: str
    keeps_space: bool
    approved: bool


@dataclass(frozen=True, slots=True)
class _Around:
    """What an element's ancestors say of it."""

    translate: bool = True
    keeps_space: bool = False

    def within(self, attributes: Mapping[str, str]) -> "_Around":
        translate, space = attributes.get("translate"), attributes.get(XML + "space")
        return _Around(
            self.translate if translate is None else translate != "no",
            self.keeps_space if space is None else space == "preserve",
        )


class Places:
    """The document's content, and the places in it.

    Raises:
        DamagedDocumentError: it is not well-formed, or not XLIFF.
    """

    def __init__(self, text: str) -> None:
        found = tokens(text)
        root = next(token for token in found if token.opens)
        if root.name != "xliff" and not (root.name.startswith(_NAMESPACE) and root.name.endswith("}xliff")):
            raise DamagedDocumentError(f"not XLIFF: its root element is {root.name}", f"line {root.line}")
        self.content = Content(text, found, closings(found), root.name.removesuffix("xliff"))
        self.version = root.attributes.get("version", "1.2")
        self.newer = self.version.startswith("2")
        self._root = root

    def __iter__(self) -> Iterator[Place]:
        """In the document's order."""
        arounds = [_Around()]
        languages = Languages(self._root, "srcLang", "trgLang")
        at = 0
        while at < len(self.content.found):
            token = self.content.found[at]
            del arounds[token.depth + 1 :]
            if token.kind is Kind.START:
                arounds.append(arounds[-1].within(token.attributes))
                name = self.content.name(at)
                if name == "file" and not self.newer:
                    languages = Languages(token, "source-language", "target-language")
                if name == ("unit" if self.newer else "trans-unit"):
                    yield from self._held(at, arounds[-1], languages)
                if name not in ("xliff", "file", "body", "group"):
                    at = self.content.closings[at]
            at += 1

    def _held(self, at: int, around: _Around, languages: Languages) -> Iterator[Place]:
        if not around.translate:
            return
        where = f"unit {self.content.found[at].attributes.get('id', '')}"
        if not self.newer:
            yield from self._place(at, around, languages, where)
            return
        for name, index in self._children(at):
            if name == "segment":
                yield from self._place(index, around, languages, where)

    def _children(self, at: int) -> Iterator[tuple[str, int]]:
        end, at = self.content.closings[at], at + 1
        while at < end:
            if self.content.found[at].opens:
                yield self.content.name(at), at
                at = self.content.closings[at]
            at += 1

    def _place(self, at: int, around: _Around, languages: Languages, where: str) -> Iterator[Place]:
        children = dict(self._children(at))
        source, target = children.get("source"), children.get("target")
        if source is None or self.content.found[source].kind is Kind.EMPTY:
            return
        pattern = segmented = children.get("seg-source", source)
        holes = self._segments(pattern, at, target) if pattern != source else ()
        if not holes:
            pattern, holes = source, (self._hole(source, self._kept(at, target)),)
        keeps_space = around.within(self.content.found[source].attributes).keeps_space
        approved = self._approved(at, target)
        yield Place(languages, at, source, segmented, pattern, target, holes, where, keeps_space, approved)

    def _approved(self, at: int, target: int | None) -> bool:
        said = self.content.found[at].attributes
        state = (
            said.get("state", "") if self.newer or target is None else self.content.found[target].attributes.get("state", "")
        )
        return said.get("approved") == "yes" or state in ("final", "signed-off")

    def _hole(self, element: int, kept: str | None) -> Hole:
        return Hole(element + 1, self.content.closings[element], kept)

    def _kept(self, holder: int, target: int | None) -> str | None:
        """What the target has, if that is a translation."""
        if target is None or self.content.found[target].kind is Kind.EMPTY:
            return None
        tags = (self.content.found[holder], self.content.found[target])
        if any(tag.attributes.get("state") in _UNTRANSLATED for tag in tags):
            return None
        return self._filled(target)

    def _filled(self, element: int) -> str | None:
        start, end = element + 1, self.content.closings[element]
        filled = any(token.opens or token.text.strip() for token in self.content.found[start:end])
        return self.content.raw(start, end) if filled else None

    def _segments(self, pattern: int, holder: int, target: int | None) -> tuple[Hole, ...]:
        """Of a <seg-source>: its marked segments, with what the target has for each."""
        there = dict(self._marks(target)) if target is not None and self._kept(holder, target) is not None else {}
        return tuple(self._hole(at, self._filled(there[mid]) if mid in there else None) for mid, at in self._marks(pattern))

    def _marks(self, element: int) -> Iterator[tuple[str, int]]:
        at, end = element + 1, self.content.closings[element]
        while at < end:
            token = self.content.found[at]
            if token.kind is Kind.START and self.content.name(at) == "mrk" and token.attributes.get("mtype") == "seg":
                yield token.attributes.get("mid", ""), at
                at = self.content.closings[at]
            at += 1
