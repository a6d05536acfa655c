"""What stands around a sentence and need not be placed: white space, marks at its ends, pairs around the whole of it."""

from dataclasses import dataclass

from triptych_documents.segments.segment import Segment
from triptych_documents.unit import Piece, Role


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
