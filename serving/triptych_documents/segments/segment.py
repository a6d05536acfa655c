"""Segments: stretches of a unit with their inline tags and protected items."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from triptych_documents.rules import Term
from triptych_documents.segments.protected import ProtectedKind
from triptych_documents.unit import Code, Piece, Role, joined

ORDINALS = ("st", "nd", "rd", "th")  # endings of numbers in English, which have others in a translation
_TAIL = re.compile(rf"(?:['’]s|{'|'.join(ORDINALS)})(?!\w)")


@dataclass(frozen=True, slots=True)
class InlineTag:
    """Markup between two characters of a segment."""

    at: int
    piece: Piece  # a code, or a tag written in the text
    role: Role
    pair: int = -1  # shared by an opening tag and its closing tag
    fixed: bool = False  # no text may move across it
    space: bool = False  # white space: the text has one space in its place


@dataclass(frozen=True, slots=True)
class ProtectedSpan:
    """Text that must be kept."""

    start: int
    end: int
    kind: ProtectedKind
    pieces: tuple[Piece, ...]  # as written in the document
    term: Term | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Text with its inline tags and protected items, both in order."""

    text: str
    tags: tuple[InlineTag, ...] = ()
    protected: tuple[ProtectedSpan, ...] = ()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Pieces as they stand in the document."""
        if not self.tags and not self.protected:
            return (self.text,) if self.text else ()
        return joined(list(self._pieces()))

    def _pieces(self) -> Iterator[Piece]:
        at = 0
        protected = iter((*self.protected, None))
        item = next(protected)
        for tag in (*self.tags, None):
            end = len(self.text) if tag is None else tag.at
            while item is not None and item.start < end:
                yield self.text[at : item.start]
                yield from item.pieces
                at, item = item.end, next(protected)
            if at < end:
                yield self.text[at:end]
                at = end
            if tag is not None:
                yield tag.piece
                at += tag.space

    @property
    def has_words(self) -> bool:
        """True if there are letters outside of protected items, so that there is something to translate."""
        if not self.protected:
            return has_letters(self.text)
        return any(has_letters(text) for text in self.between())

    def between(self) -> Iterator[str]:
        at = 0
        for item in self.protected:
            if item.kind is not ProtectedKind.TERM:
                yield self.text[at : item.start]
                at = with_tail(self, item).end
        yield self.text[at:]

    def cut(self, cuts: Iterable[tuple[int, int]]) -> list["Segment"]:
        """Split into parts.

        Args:
            cuts: in order: an offset outside of any protected item, and the number of tags before it.
        """
        if not (ends := list(cuts)):
            return [self]
        parts = []
        start = first = 0
        places = [item.start for item in self.protected]
        for end, last in (*ends, (len(self.text), len(self.tags))):
            inner = self.protected[bisect_left(places, start) : bisect_left(places, end)] if places else ()
            tags = self.tags[first:last]
            if start:  # `replace` would be slow
                tags = tuple(InlineTag(tag.at - start, tag.piece, tag.role, tag.pair, tag.fixed, tag.space) for tag in tags)
                inner = tuple(
                    ProtectedSpan(item.start - start, item.end - start, item.kind, item.pieces, item.term) for item in inner
                )
            parts.append(Segment(self.text[start:end], tags, inner))
            start, first = end, last
        return parts


def with_tail(segment: Segment, item: ProtectedSpan) -> ProtectedSpan:
    """Extend a protected item by a following ending, as in {name}'s, or of a code that is shown as a number: 25th."""
    match = _TAIL.match(segment.text, item.end)
    if match is None or any(item.end <= tag.at < match.end() for tag in segment.tags):
        return item
    return replace(item, end=match.end(), pieces=(*item.pieces, match[0]))


def has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def shown(pieces: Iterable[Piece]) -> str:
    """Return the text that a reader sees."""
    return "".join(piece.shown if isinstance(piece, Code) else piece for piece in pieces)


def trim(segment: Segment) -> tuple[tuple[Piece, ...], Segment, tuple[Piece, ...]]:
    """Split off surrounding white space, and tags at both ends that stay there in any translation.

    Returns:
        the pieces before the core, the core, and the pieces after it.
    """
    text, tags = segment.text, segment.tags
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if segment.protected:  # a code sample may show white space at its ends
        start, end = min(start, segment.protected[0].start), max(end, segment.protected[-1].end)
    if not tags:
        core = segment if end - start == len(text) else segment.cut([(start, 0), (end, 0)])[1]
        return (text[:start],) if start else (), core, (text[end:],) if end < len(text) else ()
    first = _first(segment, start, end)
    last = _last(segment, first, end)
    left = min(start, tags[first].at) if first < len(tags) else start
    right = max(end, tags[last - 1].at + tags[last - 1].space) if last > first else end
    before, core, after = segment.cut([(left, first), (right, last)])
    return before.pieces, core, after.pieces


def _first(segment: Segment, start: int, end: int) -> int:
    """Count the tags that stay before the core."""
    inside = {tag.pair for tag in segment.tags if tag.role is Role.CLOSE and start < tag.at < end}
    for index, tag in enumerate(segment.tags):
        if tag.at > start or (tag.role is Role.OPEN and tag.pair in inside):
            return index
    return len(segment.tags)


def _last(segment: Segment, first: int, end: int) -> int:
    """Return the index of the first tag that stays behind the core."""
    tags = segment.tags
    inside = {tag.pair for tag in tags[first:] if tag.role is Role.OPEN and tag.at < end}
    for index in range(len(tags), first, -1):
        tag = tags[index - 1]
        if tag.at < end or (tag.role is Role.CLOSE and tag.pair in inside):
            return index
    return first
