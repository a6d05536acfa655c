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


def segment_slots(tree: XliffTree) -> Iterator[SegmentSlot]:
    """Yield the sources of a document in order."""
    inherited = [_Inherited()]
    languages = LanguageAttributes(tree.tokens[tree.root()], "srcLang", "trgLang")
    at = 0
    while at < len(tree.tokens):
        token = tree.tokens[at]
        del inherited[token.depth + 1 :]
        if token.kind is XmlTokenKind.START:
            inherited.append(inherited[-1].within(token.attributes))
            name = tree.name(at)
            if name == "file" and not tree.newer:
                languages = LanguageAttributes(token, "source-language", "target-language")
            if name == ("unit" if tree.newer else "trans-unit"):
                yield from _held(tree, at, inherited[-1], languages)
            if name not in ("xliff", "file", "body", "group"):
                at = tree.end(at)
        at += 1


def _held(tree: XliffTree, at: int, inherited: _Inherited, languages: LanguageAttributes) -> Iterator[SegmentSlot]:
    if not inherited.translate:
        return
    where = f"unit {tree.tokens[at].attributes.get('id', '')}"
    segments = [child for child in tree.children(at) if tree.name(child) == "segment"]
    for holder in segments if tree.newer else [at]:
        yield from _place(tree, holder, inherited, languages, where)


def _place(tree: XliffTree, at: int, inherited: _Inherited, languages: LanguageAttributes, where: str) -> Iterator[SegmentSlot]:
    children = {tree.name(child): child for child in tree.children(at)}
    source, target = children.get("source"), children.get("target")
    if source is None or tree.tokens[source].kind is XmlTokenKind.EMPTY:
        return
    pattern = segmented = children.get("seg-source", source)
    segments = _segments(tree, pattern, at, target) if pattern != source else ()
    if not segments:
        pattern, segments = source, (SourceSegment(source + 1, tree.end(source), _kept(tree, at, target)),)
    keeps_space = inherited.within(tree.tokens[source].attributes).keeps_space
    approved = _approved(tree, at, target)
    yield SegmentSlot(languages, at, source, segmented, pattern, target, segments, where, keeps_space, approved)


def _approved(tree: XliffTree, at: int, target: int | None) -> bool:
    attributes = tree.tokens[at].attributes
    stated = attributes if tree.newer or target is None else tree.tokens[target].attributes
    return attributes.get("approved") == "yes" or stated.get("state") in ("final", "signed-off")


def _kept(tree: XliffTree, holder: int, target: int | None) -> str | None:
    """Return the content of the target if it is a translation."""
    if target is None or tree.tokens[target].kind is XmlTokenKind.EMPTY:
        return None
    tags = (tree.tokens[holder], tree.tokens[target])
    if any(tag.attributes.get("state") in _UNTRANSLATED for tag in tags):
        return None
    return _filled(tree, target)


def _filled(tree: XliffTree, element: int) -> str | None:
    start, end = element + 1, tree.end(element)
    filled = any(token.opens or token.text.strip() for token in tree.tokens[start:end])
    return tree.source(start, end) if filled else None


def _segments(tree: XliffTree, pattern: int, holder: int, target: int | None) -> tuple[SourceSegment, ...]:
    """Return the marked segments of a <seg-source> with their existing translations."""
    there = dict(_marks(tree, target)) if target is not None and _kept(tree, holder, target) is not None else {}
    kept = {mid: _filled(tree, at) for mid, at in there.items()}
    return tuple(SourceSegment(at + 1, tree.end(at), kept.get(mid)) for mid, at in _marks(tree, pattern))


def _marks(tree: XliffTree, element: int) -> Iterator[tuple[str, int]]:
    at, end = element + 1, tree.end(element)
    while at < end:
        token = tree.tokens[at]
        if token.kind is XmlTokenKind.START and tree.name(at) == "mrk" and token.attributes.get("mtype") == "seg":
            yield token.attributes.get("mid", ""), at
            at = tree.end(at)
        at += 1
