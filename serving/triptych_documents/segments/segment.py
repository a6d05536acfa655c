"""A stretch of a unit: text as readers see it, with marks between its letters and things that must be kept among its words."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from triptych_documents.rules import Term
from triptych_documents.segments.protected import ProtectedKind
from triptych_documents.unit import Code, Piece, Role, joined

_TAIL = re.compile(r"['’]s(?!\w)")


@dataclass(frozen=True, slots=True)
class InlineTag:
    """Markup between two letters."""

    at: int
    piece: Piece  # a code, or a tag that the text has
    role: Role
    pair: int = -1  # equal for what opens and what closes it
    fixed: bool = False  # nothing may move across it
    space: bool = False  # white space: stands in the place of the space that the text has here


@dataclass(frozen=True, slots=True)
class ProtectedSpan:
    """Text that must be kept."""

    start: int
    end: int
    sort: ProtectedKind
    pieces: tuple[Piece, ...]  # what stands there in the document
    term: Term | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Text with the marks and things in it, each in order."""

    text: str
    marks: tuple[InlineTag, ...] = ()
    things: tuple[ProtectedSpan, ...] = ()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """As in the document."""
        if not self.marks and not self.things:
            return (self.text,) if self.text else ()
        return joined(list(self._pieces()))

    def _pieces(self) -> Iterator[Piece]:
        at = 0
        things = iter((*self.things, None))
        thing = next(things)
        for mark in (*self.marks, None):
            end = len(self.text) if mark is None else mark.at
            while thing is not None and thing.start < end:
                yield self.text[at : thing.start]
                yield from thing.pieces
                at, thing = thing.end, next(things)
            if at < end:
                yield self.text[at:end]
                at = end
            if mark is not None:
                yield mark.piece
                at += mark.space

    @property
    def has_words(self) -> bool:
        """Letters outside of what is kept, so that there is something to translate."""
        if not self.things:
            return has_letters(self.text)
        return any(has_letters(text) for text in self.between())

    def between(self) -> Iterator[str]:
        """The text around its things."""
        at = 0
        for thing in self.things:
            if thing.sort is not ProtectedKind.TERM:
                yield self.text[at : thing.start]
                at = with_tail(self, thing).end
        yield self.text[at:]

    def cut(self, cuts: Iterable[tuple[int, int]]) -> list["Segment"]:
        """In parts.

        Args:
            cuts: in order: a place in the text that is in no thing, and how many marks stand before it.
        """
        if not (ends := list(cuts)):
            return [self]
        parts = []
        start = first = 0
        places = [thing.start for thing in self.things]
        for end, last in (*ends, (len(self.text), len(self.marks))):
            inner = self.things[bisect_left(places, start) : bisect_left(places, end)] if places else ()
            parts.append(Segment(self.text[start:end], _marks(self.marks[first:last], start), _things(inner, start)))
            start, first = end, last
        return parts


def _marks(marks: Sequence[InlineTag], start: int) -> tuple[InlineTag, ...]:
    if not start:
        return tuple(marks)
    return tuple(InlineTag(mark.at - start, mark.piece, mark.role, mark.pair, mark.fixed, mark.space) for mark in marks)


def _things(things: Sequence[ProtectedSpan], start: int) -> tuple[ProtectedSpan, ...]:
    if not start:
        return tuple(things)
    return tuple(
        ProtectedSpan(thing.start - start, thing.end - start, thing.sort, thing.pieces, thing.term) for thing in things
    )


def with_tail(segment: Segment, thing: ProtectedSpan) -> ProtectedSpan:
    """With the ending of a genitive, as in {name}'s."""
    match = _TAIL.match(segment.text, thing.end)
    if match is None or any(thing.end <= mark.at < match.end() for mark in segment.marks):
        return thing
    return replace(thing, end=match.end(), pieces=(*thing.pieces, match[0]))


def has_letters(text: str) -> bool:
    """Whether there is anything to translate."""
    return any(map(str.isalpha, text))


def shown(pieces: Iterable[Piece]) -> str:
    """As readers see it."""
    return "".join(piece.shown if isinstance(piece, Code) else piece for piece in pieces)


@dataclass(frozen=True, slots=True)
class TrimmedSegment:
    """A segment's words, and what stands before and after them."""

    before: tuple[Piece, ...]
    core: Segment
    after: tuple[Piece, ...]


def trim(segment: Segment) -> TrimmedSegment:
    """Its core neither begins nor ends with white space or with marks that stay there in any translation."""
    text, marks = segment.text, segment.marks
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if not marks:
        core = segment if end - start == len(text) else segment.cut([(start, 0), (end, 0)])[1]
        return TrimmedSegment((text[:start],) if start else (), core, (text[end:],) if end < len(text) else ())
    first = _first(segment, start, end)
    last = _last(segment, first, end)
    left = min(start, marks[first].at) if first < len(marks) else start
    right = max(end, marks[last - 1].at + marks[last - 1].space) if last > first else end
    before, core, after = segment.cut([(left, first), (right, last)])
    return TrimmedSegment(before.pieces, core, after.pieces)


def _first(segment: Segment, start: int, end: int) -> int:
    """How many marks stay before the words."""
    inside = {mark.pair for mark in segment.marks if mark.role is Role.CLOSE and start < mark.at < end}
    for index, mark in enumerate(segment.marks):
        if mark.at > start or (mark.role is Role.OPEN and mark.pair in inside):
            return index
    return len(segment.marks)


def _last(segment: Segment, first: int, end: int) -> int:
    """Before how many marks those begin that stay after the words."""
    marks = segment.marks
    inside = {mark.pair for mark in marks[first:] if mark.role is Role.OPEN and mark.at < end}
    for index in range(len(marks), first, -1):
        mark = marks[index - 1]
        if mark.at < end or (mark.role is Role.CLOSE and mark.pair in inside):
            return index
    return first
