"""A unit as one segment: codes become marks or things, and so do tags and placeholders that its text has."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from triptych_documents.segments.protected import ProtectedFinder, ProtectedKind, ProtectedMatch
from triptych_documents.segments.segment import InlineTag, ProtectedSpan, Segment
from triptych_documents.unit import Code, Piece, Role, joined

_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,40})((?:\s[^<>\n]{0,500})?)(/?)>")
_BREAKS = frozenset(("br", "hr", "p", "li", "div", "td", "tr", "ul", "ol"))  # HTML's that stand between sentences, not in them
_EMPTY = frozenset(("br", "hr", "img", "wbr", "input"))  # HTML's that have no end
_DEPTH = 16  # open tags among which the one that is closed is looked for
_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "‘": "’", "«": "»", "(": ")", "[": "]", "「": "」"}


def read_segment(pieces: Sequence[Piece], finder: ProtectedFinder) -> Segment:
    """The whole unit.

    Args:
        pieces: of a unit.
        finder: knows what must be kept.
    """
    if len(pieces) == 1 and isinstance(text := pieces[0], str) and not finder.may_have(text):
        return Segment(text)
    tokens = list(_tokens(pieces))
    flow = _SegmentBuilder(_tag_pairs(tokens))
    for place, token in enumerate(tokens):
        flow.add(place, token)
    text, marks = "".join(flow.texts), flow.marks
    things = flow.things
    if finder.may_have(text):
        found = finder.find(text)
        marks, things, found = _absorbed(found, marks, things, text)
        things = _fitted(found, things, marks, text)
    return Segment(text, tuple(marks), tuple(_widened(_merged(things, marks, text), marks, text)))


Token = str | Code | re.Match[str]  # a match is a tag in a text


def _tokens(pieces: Sequence[Piece]) -> Iterator[Token]:
    for piece in pieces:
        if isinstance(piece, Code) or "<" not in piece:
            yield piece
            continue
        start = 0
        for tag in _TAG.finditer(piece):
            yield piece[start : tag.start()]
            yield tag
            start = tag.end()
        yield piece[start:]


def _tag_pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """For each tag that is one of a pair its pair's number, which is below 0: codes have theirs above."""
    opened: list[tuple[str, int]] = []
    pairs: dict[int, int] = {}
    for place, token in enumerate(tokens):
        name, role = _name(token)
        if role is Role.OPEN:
            opened.append((name, place))
        elif role is Role.CLOSE and any(name == other for other, _ in opened[-_DEPTH:]):
            while opened[-1][0] != name:
                opened.pop()
            start = opened.pop()[1]
            if not isinstance(token, Code):
                pairs[start] = pairs[place] = -1 - start
    return pairs


def _name(token: Token) -> tuple[str, Role]:
    if isinstance(token, str):
        return "", Role.ALONE
    if isinstance(token, Code):
        return f"#{token.pair}", token.role
    if token[4] or token[2].lower() in _EMPTY:
        return "", Role.ALONE
    return token[2], Role.CLOSE if token[1] else Role.OPEN


class _SegmentBuilder:
    """A unit's text, with what stands in it."""

    def __init__(self, tag_pairs: Mapping[int, int]) -> None:
        self._tag_pairs = tag_pairs
        self._at = 0
        self.texts: list[str] = []
        self.marks: list[InlineTag] = []
        self.things: list[ProtectedSpan] = []

    def add(self, place: int, token: Token) -> None:
        if isinstance(token, str):
            self._add_text(token)
        elif isinstance(token, Code):
            self._add_code(token)
        else:
            self._add_tag(place, token)

    def _add_code(self, code: Code) -> None:
        if code.fixed or code.role is not Role.ALONE or not code.shown:
            self.marks.append(InlineTag(self._at, code, code.role, code.pair, code.fixed))
        elif code.shown.isspace():
            self.marks.append(InlineTag(self._at, code, code.role, space=True))
            self._add_text(" ")
        else:
            self.things.append(ProtectedSpan(self._at, self._at + len(code.shown), ProtectedKind.NAME, (code,)))
            self._add_text(code.shown)

    def _add_tag(self, place: int, tag: re.Match[str]) -> None:
        name = tag[2].lower()
        if name in _BREAKS:
            self.marks.append(InlineTag(self._at, tag[0], Role.ALONE, fixed=True))
        elif place in self._tag_pairs:
            role = Role.CLOSE if tag[1] else Role.OPEN
            self.marks.append(InlineTag(self._at, tag[0], role, self._tag_pairs[place]))
        elif tag[4] or tag[1] or name in _EMPTY:
            self.marks.append(InlineTag(self._at, tag[0], Role.ALONE))
        else:  # such as <file>, which readers see
            self._add_text(tag[0])

    def _add_text(self, text: str) -> None:
        self.texts.append(text)
        self._at += len(text)


def _absorbed(
    found: Sequence[ProtectedMatch], marks: list[InlineTag], codes: list[ProtectedSpan], text: str
) -> tuple[list[InlineTag], list[ProtectedSpan], list[ProtectedMatch]]:
    """What was found around codes becomes one thing with them, unless a pair has one end in it alone."""
    gone_marks: set[int] = set()
    gone_codes: set[int] = set()
    absorbing: list[ProtectedSpan] = []
    rest: list[ProtectedMatch] = []
    for one in found:
        first, last = bisect_right(marks, one.start, key=_at), bisect_left(marks, one.end, key=_at)
        head, tail = bisect_left(codes, one.start, key=_start), bisect_left(codes, one.end, key=_start)
        inner, shown = marks[first:last], codes[head:tail]
        whole = (not shown or shown[-1].end <= one.end) and (not head or codes[head - 1].end <= one.start)
        if (
            one.sort not in (ProtectedKind.NAME, ProtectedKind.COUNT)
            or not (inner or shown)
            or not whole
            or not _is_closed(inner)
        ):
            rest.append(one)
            continue
        gone_marks.update(range(first, last))
        gone_codes.update(range(head, tail))
        part = Segment(text, tuple(inner), tuple(shown)).cut([(one.start, 0), (one.end, len(inner))])[1]
        absorbing.append(ProtectedSpan(one.start, one.end, one.sort, part.pieces))
    kept = [code for index, code in enumerate(codes) if index not in gone_codes]
    things = sorted((*kept, *absorbing), key=_start)
    return [mark for index, mark in enumerate(marks) if index not in gone_marks], things, rest


def _is_closed(marks: Sequence[InlineTag]) -> bool:
    """Nothing here is fixed, and no pair goes on outside."""
    opened: list[int] = []
    for mark in marks:
        if mark.fixed:
            return False
        if mark.role is Role.OPEN:
            opened.append(mark.pair)
        elif mark.role is Role.CLOSE and (not opened or opened.pop() != mark.pair):
            return False
    return not opened


def _at(mark: InlineTag) -> int:
    return mark.at


def _start(thing: ProtectedSpan) -> int:
    return thing.start


def _fitted(
    found: Sequence[ProtectedMatch], codes: Sequence[ProtectedSpan], marks: Sequence[InlineTag], text: str
) -> list[ProtectedSpan]:
    """What was found, cut where codes are among it: these are things themselves, or stay between its parts."""
    things = list(codes)
    borders = sorted({place for thing in codes for place in (thing.start, thing.end)} | {mark.at for mark in marks})
    covered = [False] * len(text) if codes else []
    for thing in codes:
        covered[thing.start : thing.end] = [True] * (thing.end - thing.start)
    rest = iter((*borders, len(text)))
    border = next(rest)
    for one in found:
        start = one.start
        while start < one.end:
            while border <= start and border < len(text):
                border = next(rest)
            end = min(one.end, border if border > start else one.end)
            if not (covered and covered[start]):
                things.append(
                    ProtectedSpan(
                        start, end, one.sort, (text[start:end],), one.term if end - start == one.end - one.start else None
                    )
                )
            start = end
    things.sort(key=lambda thing: thing.start)
    return [thing for thing in things if thing.sort is not ProtectedKind.TERM or thing.term is not None]


def _merged(things: Sequence[ProtectedSpan], marks: Sequence[InlineTag], text: str) -> list[ProtectedSpan]:
    """Neighbours with no word and no mark between them as one."""
    groups: list[list[ProtectedSpan]] = []
    places = {mark.at for mark in marks}
    for thing in things:
        if groups and _mergeable(groups[-1][-1], thing, places, text):
            groups[-1].append(thing)
        else:
            groups.append([thing])
    return [group[0] if len(group) == 1 else _one(group, text) for group in groups]


def _one(group: Sequence[ProtectedSpan], text: str) -> ProtectedSpan:
    pieces: list[Piece] = [*group[0].pieces]
    for left, right in pairwise(group):
        pieces += (text[left.end : right.start], *right.pieces)
    return ProtectedSpan(group[0].start, group[-1].end, ProtectedKind.NAME, joined(pieces))


def _mergeable(left: ProtectedSpan, right: ProtectedSpan, places: set[int], text: str) -> bool:
    apart = (ProtectedKind.KEEP, ProtectedKind.TERM)
    if left.sort in apart or right.sort in apart or (left.sort is ProtectedKind.NUMBER and right.sort is ProtectedKind.NUMBER):
        return False
    between = text[left.end : right.start]
    if ProtectedKind.NUMBER in (left.sort, right.sort) and between:
        return False
    if len(between) > 3 or any(sign.isalnum() or sign in "\n.!?" for sign in between):
        return False
    return not any(place in places for place in range(left.end, right.start + 1))


def _widened(things: Sequence[ProtectedSpan], marks: Sequence[InlineTag], text: str) -> Iterator[ProtectedSpan]:
    """With letters that touch them, and quotation marks and brackets around them."""
    places = {mark.at for mark in marks}
    taken = 0
    starts = [thing.start for thing in things]
    for index, thing in enumerate(things):
        limit = starts[index + 1] if index + 1 < len(starts) else len(text)
        start, end = thing.start, thing.end
        if thing.sort in (ProtectedKind.NAME, ProtectedKind.COUNT):
            while start > taken and start not in places and _is_word(text[start - 1]):
                start -= 1
            while end < limit and end not in places and _is_word(text[end]):
                end += 1
            around = start not in places and end not in places and taken < start and end < limit
            if around and _QUOTES.get(text[start - 1]) == text[end]:
                start, end = start - 1, end + 1
        taken = end
        yield ProtectedSpan(
            start, end, thing.sort, (text[start : thing.start], *thing.pieces, text[thing.end : end]), thing.term
        )


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
