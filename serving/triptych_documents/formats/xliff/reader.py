"""XLIFF 1.2 and 2.x (OASIS): sources are translated and targets written beside them; nothing else changes.

A unit is a <trans-unit> (or a segment of its <seg-source>) or a <segment>. Existing targets are kept unless requested
otherwise; translate="no" is always respected.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from triptych_documents.encoding import Encoding
from triptych_documents.findings import Finding, Severity
from triptych_documents.findings import FindingKind as Finds
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.declared_languages import check_source, foreign_translations
from triptych_documents.formats.shared.inline_codes import SPACE, spaced, split_ends
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.text_document import Span, UnitLimit, replaced
from triptych_documents.formats.shared.xml import (
    XmlToken,
    XmlTokenKind,
    attribute_spans,
    decoded,
    encoded,
    with_attribute,
    without_attribute,
    written_text,
)
from triptych_documents.formats.xliff.inline import XliffTree, written
from triptych_documents.formats.xliff.segments import LanguageAttributes, SegmentSlot, SourceSegment, segment_slots
from triptych_documents.unit import Piece, Unit, changed, joined
from triptych_text.languages import languages_differ

_NAME = re.compile(r"<([^\s/>]+)")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A unit and its surroundings."""

    unit: Unit
    lead: str  # white space before it
    tail: str  # white space after it
    cdata: bool  # the source is a CDATA section

    def filled(self, pieces: Sequence[Piece]) -> str:
        return written_text(self.lead) + written(pieces, cdata=self.cdata) + written_text(self.tail)


class _Xliff:
    def __init__(self, text: str, encoding: Encoding, options: ReadOptions) -> None:
        self._encoding, self._options = encoding, options
        self._tree = XliffTree(text)
        self._findings: list[Finding] = []
        self._entries: list[_Entry] = []
        self._slots: list[tuple[SegmentSlot, tuple[int | None, ...]]] = []  # with entry numbers of its segments
        for place in self._chosen():
            numbers = tuple(self._entered(place, segment) for segment in place.segments)
            self._slots.append((place, numbers))
        self.units = tuple(entry.unit for entry in self._entries)
        self.findings = tuple(self._findings)

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        new = changed(self.units, translations)
        edits: dict[Span, str] = {}
        long: list[Finding] = []
        for place, numbers in self._slots:
            texts = [new[number] for number in numbers if number in new]
            if texts:
                edits |= self._edits(place, numbers, new)
                long += self._length_findings(
                    place, sum(len(piece) for text in texts for piece in text if isinstance(piece, str))
                )
        self.findings = (*self._findings, *long)
        return encoded(replaced(self._tree.text, edits.items()), self._encoding)

    def _chosen(self) -> Iterator[SegmentSlot]:
        places = list(segment_slots(self._tree))
        wrong = {place.languages.holder.start for place in places if self._foreign(place)}
        reported: set[int] = set()
        for place in places:
            holder = place.languages.holder
            if holder.start not in reported:
                reported.add(holder.start)
                self._findings.extend(self._language_findings(place.languages, holder.start in wrong))
            if holder.start not in wrong and (self._options.retranslate or not place.approved):
                yield place

    def _foreign(self, place: SegmentSlot) -> bool:
        """Return whether the targets are in another language, so that a new target would mix languages."""
        stays = not self._options.retranslate and any(segment.kept is not None for segment in place.segments)
        return stays and languages_differ(place.languages.target, self._options.target_language)

    def _language_findings(self, languages: LanguageAttributes, wrong: bool) -> Iterator[Finding]:
        line = f"line {languages.holder.line}"
        if wrong:
            yield foreign_translations(languages.target, self._options.target_language, line, "targets")
        yield from check_source(languages.source, self._options.source_language, line)

    def _length_findings(self, place: SegmentSlot, length: int) -> Iterator[Finding]:
        attributes = self._tree.tokens[place.holder].attributes
        most = attributes.get("maxwidth", "")
        if attributes.get("size-unit") == "char" and most.isdecimal() and len(most) < 10 and length > int(most):
            yield Finding(Finds.LENGTH, Severity.WARNING, place.where, f"{length} characters, its maxwidth is {most}")

    def _entered(self, place: SegmentSlot, segment: SourceSegment) -> int | None:
        if segment.kept is not None and not self._options.retranslate:
            return None
        tree = self._tree
        for at, token in enumerate(tree.tokens[segment.start : segment.end], segment.start):
            words = tree.characters(at).strip() if token.opens and tree.name(at) == "sub" else ""
            if words:
                problem = f"text of <sub> inside of a code is not translated: {words[:60]!r}"
                self._findings.append(Finding(Finds.FORMAT, Severity.WARNING, place.where, problem))
        pieces, lead, tail = _trimmed(tree.pieces(segment.start, segment.end), place.keeps_space)
        if not any(isinstance(piece, str) and piece.strip() for piece in pieces):
            return None
        kinds = {token.kind for token in tree.tokens[segment.start : segment.end] if token.opens or token.text.strip()}
        self._entries.append(_Entry(Unit(pieces, place.where, place.keeps_space), lead, tail, kinds == {XmlTokenKind.CDATA}))
        return len(self._entries) - 1

    def _edits(self, place: SegmentSlot, numbers: Sequence[int | None], new: Mapping[int, Sequence[Piece]]) -> dict[Span, str]:
        content, whole = self._content(place, numbers, new)
        edits = self._target(place, content, whole)
        holder, languages = self._tree.tokens[place.holder], place.languages
        edits[holder.start, holder.end] = self._held(self._raw(holder), whole)
        wanted = self._options.target_language
        if wanted and (not languages.target or languages_differ(languages.target, wanted)):
            tag = with_attribute(self._raw(languages.holder), languages.target_name, wanted)
            edits[languages.holder.start, languages.holder.end] = tag
        return edits

    def _content(
        self, place: SegmentSlot, numbers: Sequence[int | None], new: Mapping[int, Sequence[Piece]]
    ) -> tuple[str, bool]:
        """Return the content of the target, and whether all of it is translated."""
        tree, whole = self._tree, True
        at, parts = place.pattern + 1, list[str]()
        for segment, number in zip(place.segments, numbers, strict=True):
            parts.append(tree.source(at, segment.start))
            if number is not None and number in new:
                parts.append(self._entries[number].filled(new[number]))
            else:
                whole = whole and (number is None or segment.kept is not None)
                parts.append(tree.source(segment.start, segment.end) if segment.kept is None else segment.kept)
            at = segment.end
        parts.append(tree.source(at, tree.end(place.pattern)))
        return "".join(parts), whole

    def _target(self, place: SegmentSlot, content: str, whole: bool) -> dict[Span, str]:
        """Return the target element with this content, by its place."""
        if place.target is not None:
            return {self._tree.span(place.target): self._element(self._tree.tag(place.target), content, whole)}
        source = self._tree.tag(place.source)
        tag_name = _name(source)[: -len("source")] + "target"
        behind = self._tree.span(place.before)[1]
        tag_raw = f"<{tag_name}>"
        for name in ("xml:space", "xml:lang"):
            if name in attribute_spans(source):
                tag_raw = with_attribute(tag_raw, name, "preserve" if name == "xml:space" else self._options.target_language)
        return {(behind, behind): self._indent(place.source) + self._element(tag_raw, content, whole)}

    def _element(self, tag: str, content: str, whole: bool) -> str:
        there = attribute_spans(tag)
        if not self._tree.newer:
            state = "needs-review-translation" if self._options.mark_fuzzy else "translated"
            tag = with_attribute(tag, "state", state if whole else "needs-translation")
            tag = with_attribute(tag, "state-qualifier", "mt-suggestion") if "state-qualifier" in there else tag
        if "xml:lang" in there and self._options.target_language:
            tag = with_attribute(tag, "xml:lang", self._options.target_language)
        opened = tag[:-2].rstrip() + ">" if tag.endswith("/>") else tag
        return f"{opened}{content}</{_name(tag)}>"

    def _held(self, tag: str, whole: bool) -> str:
        """Update the tag of a <trans-unit> or <segment> with a machine translation."""
        if self._tree.newer:
            state = with_attribute(tag, "state", "translated" if whole else "initial")
            return without_attribute(state, "subState")
        return with_attribute(tag, "approved", "no") if "approved" in attribute_spans(tag) else tag

    def _indent(self, source: int) -> str:
        """Return the white space that puts a <target> on a line below its <source>."""
        before = self._tree.source(source - 1, source)
        line = before.rfind("\n")
        if before.strip(SPACE) or line < 0:
            return ""
        return before[line - 1 :] if before[line - 1 : line] == "\r" else before[line:]

    def _raw(self, token: XmlToken) -> str:
        return self._tree.text[token.start : token.end]


def _name(tag: str) -> str:
    found = _NAME.match(tag)
    return found[1] if found else ""


def _trimmed(pieces: tuple[Piece, ...], keeps_space: bool) -> tuple[tuple[Piece, ...], str, str]:
    """Collapse white space; return the pieces and the white space at both ends."""
    if keeps_space or not pieces:
        return pieces, "", ""
    lead, found, tail = split_ends(pieces)
    return joined([spaced(piece) if isinstance(piece, str) else piece for piece in found]), lead, tail


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    bound = UnitLimit(options)
    bound.check_marks(data, b"<")
    return with_messages(_Xliff(*decoded(data), options), bound)
