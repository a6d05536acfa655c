"""Where a segment is cut: at fixed marks, at lines and columns, at ends of sentences; too long ones at clauses, then words."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from triptych_documents.segments.protected import ProtectedKind
from triptych_documents.segments.segment import InlineTag, Segment, with_tail
from triptych_documents.unit import Role
from triptych_text.sentences import UNSPACED, Splitter

Cut = tuple[int, int]  # a place in the text, and how many marks stand before it

# Where it does not match is one sentence. It begins with a class of characters, which is what searching is fast at.
END = (
    r"[.!?…。！？।؟\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
    r"(?:(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])|[\"'”’»)\]]*\s|(?<=[。！？।؟]).)"
)
_END = re.compile(END)
_COLUMN = re.compile(r"\t\s*|[ ]{3,}")
_CLAUSE = re.compile(r"[,;:–—][\"'”’»)\]]*\s+|[，、；：]|[)\]”»]\s+|\s+(?=[(\[“„«])")
_OTHER_SPACE = re.compile(r"[^\S ]")
_WORD = re.compile(r"\s+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_BEFORE = re.compile(r"\s*[:=|–—>]+\s+|[.)]\s+")  # behind a thing that begins a line: a label, a number of a list
_AFTER = re.compile(r"(?:[:=|]|\s[–—>])\s+$")  # before a thing that ends it


def split_sentences(segment: Segment, splitter: Splitter, *, keeps_space: bool) -> list[Segment]:
    """Its parts; white space stays with the part before.

    Args:
        segment: a unit.
        splitter: of its language.
        keeps_space: lines and columns are parts of their own.
    """
    parts = segment.cut(_fixed(segment)) if segment.marks else [segment]
    if keeps_space:
        parts = [line for part in parts for line in part.cut(_columns(part))]
    if segment.things:
        parts = [labelled for part in parts for labelled in part.cut(_labels(part))]
    return [sentence for part in parts for sentence in part.cut(_ends(part, splitter, keeps_space=keeps_space))]


def split_in_half(segment: Segment) -> list[Segment]:
    """In two near the middle, at a clause or else between words; as it is where it is one word."""
    middle, length = len(segment.text) // 2, len(segment.text)
    clause = _nearest(segment, _CLAUSE.finditer(segment.text), middle)
    if clause is not None and length <= 4 * clause <= 3 * length:
        return segment.cut([clause_cut(segment, clause)])
    word = _nearest(segment, _WORD.finditer(segment.text), middle)
    if word is None and _UNSPACED.search(segment.text) and length > 1 and not _inside(segment, middle):
        word = middle
    return [segment] if word is None else segment.cut([clause_cut(segment, word)])


def split_by_length(segment: Segment, longest: int) -> list[Segment]:
    """In parts of at most `longest` characters, where it can be cut."""
    text, cuts, start = segment.text, [], 0
    while len(text) - start > longest:
        place = _last(segment, _CLAUSE, start, longest, longest // 2) or _last(segment, _WORD, start, longest)
        if place is None and _UNSPACED.match(text, start) and not _inside(segment, start + longest):
            place = start + longest
        if place is None and (match := _next_word(segment, start + longest)) is not None:
            place = match
        if place is None or place >= len(text):
            break
        cuts.append(clause_cut(segment, place))
        start = place
    return segment.cut(cuts)


def split_around_protected(segment: Segment) -> list[Segment]:
    """In parts that are a thing each, and what is between them."""
    cuts: list[Cut] = [(0, 0)]
    for thing in segment.things:
        if thing.sort is not ProtectedKind.TERM:
            for place in (thing.start, with_tail(segment, thing).end):
                cut = _between(segment.marks, place, place)
                if cut > cuts[-1]:
                    cuts.append(cut)
    return segment.cut(cuts[1:])


def clause_cut(segment: Segment, place: int) -> Cut:
    """Here, with the marks at the white space before on the side that they belong to."""
    before = len(segment.text[:place].rstrip()) if place and segment.text[place - 1].isspace() else place
    return _between(segment.marks, before, place)


def _fixed(segment: Segment) -> Iterator[Cut]:
    """Around each fixed mark."""
    done = (0, 0)
    for index, mark in enumerate(segment.marks):
        if mark.fixed:
            for cut in ((mark.at, index), (mark.at, index + 1)):
                if cut > done:
                    yield (done := cut)


def _columns(segment: Segment) -> list[Cut]:
    return [clause_cut(segment, match.end()) for match in _COLUMN.finditer(segment.text) if not _inside(segment, match.end())]


def _labels(segment: Segment) -> Iterator[Cut]:
    """Behind what is kept at the beginning, and before what is kept at the end, where signs part it from the words."""
    things = [thing for thing in segment.things if thing.sort not in (ProtectedKind.TERM, ProtectedKind.KEEP)]
    if not things:
        return
    first, last, text, end = things[0], things[-1], segment.text, 0
    if not text[: first.start].strip() and (match := _BEFORE.match(text, first.end)) and not _inside(segment, match.end()):
        yield clause_cut(segment, end := match.end())
    split_around_protected = text[last.end :].strip(" .!?)")
    if not split_around_protected and last.start > end and (match := _AFTER.search(text, max(end, last.start - 4), last.start)):
        yield clause_cut(segment, match.end())


def _ends(segment: Segment, splitter: Splitter, *, keeps_space: bool) -> Iterator[Cut]:
    text = segment.text if keeps_space else _OTHER_SPACE.sub(" ", segment.text)
    if not _END.search(text):
        return
    split = splitter.split(_masked(segment, text))
    at = 0
    for sentence, gap in zip(split.texts, map(len, split.gaps), strict=False):
        if at:
            yield _between(segment.marks, at, at + gap)
        at += gap + len(sentence)


def _masked(segment: Segment, text: str) -> str:
    """No sentence ends within what is kept."""
    parts, at = [], 0
    for thing in segment.things:
        kept = text[thing.start : thing.end]
        if thing.sort is ProtectedKind.NAME and (" " in kept or "\n" in kept):
            parts += [text[at : thing.start], "x" * len(kept)]
            at = thing.end
    return "".join((*parts, text[at:]))


def _between(marks: Sequence[InlineTag], before: int, place: int) -> Cut:
    """Somewhere in the white space from `before` to `place`: what opens there goes to the right, and all that follows it."""
    index = bisect_left(marks, before, key=_at)
    while index < len(marks) and marks[index].at <= place:
        mark = marks[index]
        if mark.role is Role.OPEN and not _closes(marks, index, place):
            return mark.at, index
        if mark.role is Role.ALONE and before < mark.at == place:
            return place, index
        index += 1
    return place, index


def _closes(marks: Sequence[InlineTag], index: int, place: int) -> bool:
    """The pair that opens here is closed before the place, so it is empty."""
    pair = marks[index].pair
    after = marks[index + 1 : bisect_right(marks, place, key=_at)]
    return any(mark.role is Role.CLOSE and mark.pair == pair for mark in after)


def _at(mark: InlineTag) -> int:
    return mark.at


def _inside(segment: Segment, place: int) -> bool:
    """The place is within something that is kept."""
    index = bisect_left(segment.things, place, key=lambda thing: thing.start) - 1
    return index >= 0 and segment.things[index].end > place


def _nearest(segment: Segment, matches: Iterable[re.Match[str]], middle: int) -> int | None:
    length = len(segment.text)
    places = (match.end() for match in matches if match.start() and match.end() < length and not _inside(segment, match.end()))
    return min(places, key=lambda place: abs(place - middle), default=None)


def _last(segment: Segment, pattern: re.Pattern[str], start: int, longest: int, least: int = 0) -> int | None:
    """The last place behind the pattern where what begins at `start` is no longer than this, and no shorter than that."""
    found = None
    for match in pattern.finditer(segment.text, start + 1, start + longest):
        if match.end() - start >= least and not _inside(segment, match.end()):
            found = match.end()
    return found


def _next_word(segment: Segment, start: int) -> int | None:
    for match in _WORD.finditer(segment.text, start):
        if not _inside(segment, match.end()):
            return match.end()
    return None
