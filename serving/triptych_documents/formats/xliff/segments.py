"""Sources of an XLIFF document and the places of their targets (XLIFF 1.2, sections 2.2 and 2.3; 2.1, 4.2)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from triptych_documents.formats.shared.xml import XML, XmlToken, XmlTokenKind
from triptych_documents.formats.xliff.inline import XliffTree

_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})  # states of targets that only copy the source


@dataclass(frozen=True, slots=True)
class LanguageAttributes:
    """Element and attributes that declare the languages."""

    holder: XmlToken
    source_name: str
    target_name: str

    @property
    def source(self) -> str:
        return self.holder.attributes.get(self.source_name, "")

    @property
    def target(self) -> str:
        return self.holder.attributes.get(self.target_name, "")


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """Tokens [start, end) that are translated as one unit."""

    start: int
    end: int
    kept: str | None = None  # existing translation as written; None if there is none


@dataclass(frozen=True, slots=True)
class SegmentSlot:
    """A source and the place of its target, as token indices."""

    languages: LanguageAttributes
    holder: int  # <trans-unit> or <segment>
    source: int  # its <source>
    before: int  # element that a new <target> is inserted after
    pattern: int  # element whose content the target follows: <seg-source> or <source>
    target: int | None  # its <target>, if any
    segments: tuple[SourceSegment, ...]  # translatable segments of the pattern
    where: str  # human-readable place
    keeps_space: bool  # from xml:space
    approved: bool  # marked as final


@dataclass(frozen=True, slots=True)
class _Inherited:
    """Attributes inherited from enclosing elements."""

    translate: bool = True
    keeps_space: bool = False

    def within(self, attributes: Mapping[str, str]) -> "_Inherited":
        translate, space = attributes.get("translate"), attributes.get(XML + "space")
        return _Inherited(
            self.translate if translate is None else translate != "no",
            self.keeps_space if space is None else space == "preserve",
        )


class SegmentSlots:
    """Iterates over the sources of a document."""

    def __init__(self, tree: XliffTree) -> None:
        self._tree = tree

    def __iter__(self) -> Iterator[SegmentSlot]:
        inherited = [_Inherited()]
        languages = LanguageAttributes(self._tree.tokens[self._tree.root()], "srcLang", "trgLang")
        at = 0
        while at < len(self._tree.tokens):
            token = self._tree.tokens[at]
            del inherited[token.depth + 1 :]
            if token.kind is XmlTokenKind.START:
                inherited.append(inherited[-1].within(token.attributes))
                name = self._tree.name(at)
                if name == "file" and not self._tree.newer:
                    languages = LanguageAttributes(token, "source-language", "target-language")
                if name == ("unit" if self._tree.newer else "trans-unit"):
                    yield from self._held(at, inherited[-1], languages)
                if name not in ("xliff", "file", "body", "group"):
                    at = self._tree.end(at)
            at += 1

    def _held(self, at: int, inherited: _Inherited, languages: LanguageAttributes) -> Iterator[SegmentSlot]:
        if not inherited.translate:
            return
        where = f"unit {self._tree.tokens[at].attributes.get('id', '')}"
        segments = [child for child in self._tree.children(at) if self._tree.name(child) == "segment"]
        for holder in segments if self._tree.newer else [at]:
            yield from self._place(holder, inherited, languages, where)

    def _place(self, at: int, inherited: _Inherited, languages: LanguageAttributes, where: str) -> Iterator[SegmentSlot]:
        children = {self._tree.name(child): child for child in self._tree.children(at)}
        source, target = children.get("source"), children.get("target")
        if source is None or self._tree.tokens[source].kind is XmlTokenKind.EMPTY:
            return
        pattern = segmented = children.get("seg-source", source)
        segments = self._segments(pattern, at, target) if pattern != source else ()
        if not segments:
            pattern, segments = source, (self._source_segment(source, self._kept(at, target)),)
        keeps_space = inherited.within(self._tree.tokens[source].attributes).keeps_space
        approved = self._approved(at, target)
        yield SegmentSlot(languages, at, source, segmented, pattern, target, segments, where, keeps_space, approved)

    def _approved(self, at: int, target: int | None) -> bool:
        attributes = self._tree.tokens[at].attributes
        stated = attributes if self._tree.newer or target is None else self._tree.tokens[target].attributes
        return attributes.get("approved") == "yes" or stated.get("state") in ("final", "signed-off")

    def _source_segment(self, element: int, kept: str | None) -> SourceSegment:
        return SourceSegment(element + 1, self._tree.end(element), kept)

    def _kept(self, holder: int, target: int | None) -> str | None:
        """Return the content of the target if it is a translation."""
        if target is None or self._tree.tokens[target].kind is XmlTokenKind.EMPTY:
            return None
        tags = (self._tree.tokens[holder], self._tree.tokens[target])
        if any(tag.attributes.get("state") in _UNTRANSLATED for tag in tags):
            return None
        return self._filled(target)

    def _filled(self, element: int) -> str | None:
        start, end = element + 1, self._tree.end(element)
        filled = any(token.opens or token.text.strip() for token in self._tree.tokens[start:end])
        return self._tree.source(start, end) if filled else None

    def _segments(self, pattern: int, holder: int, target: int | None) -> tuple[SourceSegment, ...]:
        """Return the marked segments of a <seg-source> with their existing translations."""
        there = dict(self._marks(target)) if target is not None and self._kept(holder, target) is not None else {}
        kept = {mid: self._filled(at) for mid, at in there.items()}
        return tuple(self._source_segment(at, kept.get(mid)) for mid, at in self._marks(pattern))

    def _marks(self, element: int) -> Iterator[tuple[str, int]]:
        at, end = element + 1, self._tree.end(element)
        while at < end:
            token = self._tree.tokens[at]
            if token.kind is XmlTokenKind.START and self._tree.name(at) == "mrk" and token.attributes.get("mtype") == "seg":
                yield token.attributes.get("mid", ""), at
                at = self._tree.end(at)
            at += 1
