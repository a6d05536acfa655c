"""Masking: the text of a segment as the model reads it, without tags, and with stand-ins for what must be kept."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from triptych_documents.segments.protected import ProtectedKind, beside
from triptych_documents.segments.segment import ProtectedSpan, Segment, with_tail
from triptych_documents.sentences import Span

_BREAK = r"\t\r\n\f\v\x1c-\x1f\x85\u2028\u2029"  # white space that becomes a space
_SPACES = re.compile(rf" ?[{_BREAK}][ {_BREAK}]*| [ {_BREAK}]+")  # not a single space: there are many

_NO_BREAK = re.compile(
    r"(?<![^\w\s])(?:(?<!\d)\xa0|\xa0(?=[^\W\d_]{4}))(?![^\w\s]|\d)"
)  # between words, of which models make one
_HIDDEN = re.compile("[\u00ad\u200b\u2060\ufeff]")  # soft hyphens and other invisible characters
_CLOSING = frozenset(",.;:!?)")

# Words that models copy unchanged more often than others.
NAMES = ("Tom", "Boston", "Paris", "Maria", "Linux", "Google", "Windows", "John", "Peter", "Berlin")
NUMBERS = ("2013", "2014", "25", "5", "3", "12", "7", "30", "40", "15")


class Substitution(Enum):
    """Form of a protected item in the masked text."""

    UNCHANGED = "unchanged"
    NAME = "name"  # replaced by a name
    NUMBER = "number"  # replaced by a number
    OUT = "out"  # left out; the alignment tells where it belongs


SUBSTITUTIONS = {
    ProtectedKind.NAME: (Substitution.NAME, Substitution.NUMBER, Substitution.OUT),
    ProtectedKind.COUNT: (Substitution.NUMBER, Substitution.NAME, Substitution.OUT),
    ProtectedKind.AMOUNT: (Substitution.UNCHANGED, Substitution.NUMBER, Substitution.OUT),  # others may need another plural
    ProtectedKind.NUMBER: (Substitution.UNCHANGED, Substitution.NUMBER, Substitution.OUT),
    ProtectedKind.KEEP: (Substitution.UNCHANGED, Substitution.NAME, Substitution.OUT),
    ProtectedKind.ACRONYM: (Substitution.UNCHANGED, Substitution.NAME, Substitution.OUT),
    ProtectedKind.TERM: (Substitution.UNCHANGED, Substitution.NAME, Substitution.UNCHANGED),
}


@dataclass(frozen=True, slots=True)
class MaskedSpan:
    """A protected item in a masked sentence."""

    item: ProtectedSpan
    substitution: Substitution
    word: str  # its text in the masked sentence
    span: Span  # in the masked sentence; empty if left out


@dataclass(frozen=True, slots=True)
class MaskedSentence:
    """Text that the model reads."""

    text: str
    tag_offsets: Sequence[int]  # for each tag of the segment, its offset in the text
    spans: Sequence[MaskedSpan]  # protected items in order


def mask(segment: Segment, substitutions: Sequence[Substitution]) -> MaskedSentence:
    """Mask a segment."""
    if "\xa0" in segment.text:
        segment = replace(segment, text=_NO_BREAK.sub(" ", segment.text))
    if not (segment.protected or segment.tags):
        return MaskedSentence(_tidy(segment.text).strip(" "), (), ())
    writer = _Writer(segment)
    tags = iter((*segment.tags, None))
    tag = next(tags)
    for item, substitution in (*zip(segment.protected, substitutions, strict=True), (None, Substitution.OUT)):
        start = len(segment.text) if item is None else item.start
        while tag is not None and tag.at <= start:
            writer.tag(tag.at)
            tag = next(tags)
        writer.go_to(start)
        if item is not None:
            writer.write_item(item, substitution)
    return writer.sentence()


def single_spaced(text: str) -> str:
    """Return a text with single spaces between its words."""
    return _SPACES.sub(" ", text)


def _tidy(text: str) -> str:
    return single_spaced(text if text.isascii() else _HIDDEN.sub("", text))


class _Writer:
    """Builds the masked text; runs of white space become one space."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        rest = beside(segment.text, ((item.start, item.end) for item in segment.protected))
        names = list(map(str.upper, NAMES)) if rest.isupper() else NAMES
        self._words = {Substitution.NAME: _free(names, segment), Substitution.NUMBER: _free(NUMBERS, segment)}
        self._counts = Counter(re.findall(r"\d+", segment.text))  # of two, a translation would not tell which one is which
        self._at = 0  # in the segment
        self._parts: list[str] = []
        self._length = 0
        self._ends_blank = True  # ends with white space or is empty: further white space is dropped
        self._tag_offsets: list[int] = []
        self._spans: list[MaskedSpan] = []

    def go_to(self, place: int) -> None:
        self._write(self._segment.text[self._at : place])
        self._at = max(self._at, place)

    def tag(self, place: int) -> None:
        self.go_to(place)
        if self._segment.text[place : place + 1] in _CLOSING and not self._segment.text[place + 1 : place + 2].isalnum():
            self._close_up()
        self._tag_offsets.append(self._length)

    def write_item(self, item: ProtectedSpan, substitution: Substitution) -> None:
        original = self._segment.text[item.start : item.end]
        is_amount = item.kind is ProtectedKind.AMOUNT and substitution is Substitution.UNCHANGED
        if is_amount:
            substitution, is_amount = Substitution.NUMBER, self._counts[original] == 1
        free = self._words.get(substitution)
        if is_amount or substitution is Substitution.UNCHANGED or (not free and item.term):
            stand_in = original
        else:
            stand_in = free.pop(0) if free else ""
        if not stand_in:
            self._leave_out(item)
            return
        begin = self._length
        self._write(stand_in)
        used = substitution if is_amount or stand_in != original else Substitution.UNCHANGED
        self._spans.append(MaskedSpan(item, used, stand_in, (begin, self._length)))
        self._at = item.end

    def sentence(self) -> MaskedSentence:
        text = "".join(self._parts).rstrip(" ")
        return MaskedSentence(text, [min(place, len(text)) for place in self._tag_offsets], self._spans)

    def _leave_out(self, item: ProtectedSpan) -> None:
        """Omit an item with a genitive ending, and the space before a following comma."""
        whole = with_tail(self._segment, item)
        self._at = whole.end
        if self._segment.text[self._at : self._at + 1] in _CLOSING:
            self._close_up()
        self._spans.append(MaskedSpan(whole, Substitution.OUT, "", (self._length, self._length)))

    def _close_up(self) -> None:
        """Remove the space before punctuation that follows."""
        if self._ends_blank and self._parts:
            self._parts[-1] = self._parts[-1][:-1]
            self._length -= 1
            self._ends_blank = False
            self._tag_offsets = [min(place, self._length) for place in self._tag_offsets]

    def _write(self, text: str) -> None:
        text = _tidy(text)
        if self._ends_blank:
            text = text.lstrip(" ")
        if text:
            self._parts.append(text)
            self._ends_blank = text.endswith(" ")
            self._length += len(text)


def _free(words: Sequence[str], segment: Segment) -> list[str]:
    if not segment.protected:
        return []
    text = segment.text.lower()
    return [one for one in words if one.lower() not in text]
