"""How a sentence is said to a model: marks left out, things as they are, by a word in their place, or left out too."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from triptych_documents.segments.protected import ProtectedKind
from triptych_documents.segments.segment import ProtectedSpan, Segment, with_tail
from triptych_documents.sentences import Span

_BREAK = r"\t\r\n\f\v\x1c-\x1f\x85\u2028\u2029"  # white space that models need not see
_SPACES = re.compile(rf" ?[{_BREAK}][ {_BREAK}]*| [ {_BREAK}]+")  # not a single space: there are many

_CLOSING = frozenset(",.;:!?)")

# Words that models carry over unchanged more often than others.
NAMES = ("Tom", "Boston", "Paris", "Maria", "Linux", "Google", "Windows", "John", "Peter", "Berlin")
NUMBERS = ("2013", "2014", "25", "5", "3", "12", "7", "30", "40", "15")


class Substitution(Enum):
    """How a thing is said."""

    ITSELF = "itself"
    NAME = "name"  # a name in its place
    NUMBER = "number"  # a number in its place
    OUT = "out"  # nothing in its place; an alignment says where it belongs


SUBSTITUTIONS = {
    ProtectedKind.NAME: (Substitution.NAME, Substitution.NUMBER, Substitution.OUT),
    ProtectedKind.COUNT: (Substitution.NUMBER, Substitution.NAME, Substitution.OUT),
    ProtectedKind.NUMBER: (Substitution.ITSELF, Substitution.NUMBER, Substitution.OUT),
    ProtectedKind.KEEP: (Substitution.ITSELF, Substitution.NAME, Substitution.OUT),
    ProtectedKind.TERM: (Substitution.ITSELF, Substitution.NAME, Substitution.ITSELF),
}


@dataclass(frozen=True, slots=True)
class MaskedSpan:
    """A thing in a wording."""

    thing: ProtectedSpan
    way: Substitution
    word: str  # what stands for it
    span: Span  # where, in the wording; empty where it is left out


@dataclass(frozen=True, slots=True)
class MaskedSentence:
    """What a model reads.

    Args:
        text: of the ask.
        places: for each mark of the segment where it stands in it.
        said: its things, in order.
    """

    text: str
    places: Sequence[int]
    said: Sequence[MaskedSpan]


def mask(segment: Segment, ways: Sequence[Substitution]) -> MaskedSentence:
    """Say it.

    Args:
        segment: a sentence.
        ways: one for each of its things.
    """
    if not (segment.things or segment.marks):
        return MaskedSentence(_SPACES.sub(" ", segment.text).strip(" "), (), ())
    writer = _Writer(segment)
    marks = iter((*segment.marks, None))
    mark = next(marks)
    for thing, way in (*zip(segment.things, ways, strict=True), (None, Substitution.OUT)):
        start = len(segment.text) if thing is None else thing.start
        while mark is not None and mark.at <= start:
            writer.mark(mark.at)
            mark = next(marks)
        writer.go_to(start)
        if thing is not None:
            writer.say(thing, way)
    return writer.wording()


class _Writer:
    """Writes a segment's text. Runs of white space become one space.

    Args:
        segment: a sentence.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._words = {Substitution.NAME: _free(NAMES, segment), Substitution.NUMBER: _free(NUMBERS, segment)}
        self._at = 0  # in the segment
        self._parts: list[str] = []
        self._length = 0
        self._ends_blank = True  # white space, or nothing, is at the end: no more of it is written
        self._places: list[int] = []
        self._said: list[MaskedSpan] = []

    def go_to(self, place: int) -> None:
        """Write all before it."""
        self._write(self._segment.text[self._at : place])
        self._at = max(self._at, place)

    def mark(self, place: int) -> None:
        """A mark stands here."""
        self.go_to(place)
        self._places.append(self._length)

    def say(self, thing: ProtectedSpan, way: Substitution) -> None:
        """A thing stands here."""
        itself = self._segment.text[thing.start : thing.end]
        free = self._words.get(way)
        stand_in = itself if way is Substitution.ITSELF or (not free and thing.term) else free.pop(0) if free else ""
        if not stand_in:
            self._leave_out(thing)
            return
        begin = self._length
        self._write(stand_in)
        said_so = way if stand_in != itself else Substitution.ITSELF
        self._said.append(MaskedSpan(thing, said_so, stand_in, (begin, self._length)))
        self._at = thing.end

    def wording(self) -> MaskedSentence:
        """What was written."""
        text = "".join(self._parts).rstrip(" ")
        return MaskedSentence(text, [min(place, len(text)) for place in self._places], self._said)

    def _leave_out(self, thing: ProtectedSpan) -> None:
        """With what would make no sense without it, and the space before a comma."""
        whole = with_tail(self._segment, thing)
        self._at = whole.end
        if self._segment.text[self._at : self._at + 1] in _CLOSING and self._ends_blank and self._parts:
            self._parts[-1] = self._parts[-1][:-1]
            self._length -= 1
            self._ends_blank = False
            self._places = [min(place, self._length) for place in self._places]
        self._said.append(MaskedSpan(whole, Substitution.OUT, "", (self._length, self._length)))

    def _write(self, text: str) -> None:
        text = _SPACES.sub(" ", text)
        if self._ends_blank:
            text = text.lstrip(" ")
        if text:
            self._parts.append(text)
            self._ends_blank = text.endswith(" ")
            self._length += len(text)


def _free(words: Sequence[str], segment: Segment) -> list[str]:
    if not segment.things:
        return []
    text = segment.text.lower()
    return [one for one in words if one.lower() not in text]
