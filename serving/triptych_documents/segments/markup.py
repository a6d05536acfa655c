"""Builds the segment of a unit: codes, and tags and placeholders in the text, become inline tags or protected items."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

from triptych_documents.segments.protected import (
    SEPARATOR,
    SYMBOL,
    WORD_KINDS,
    ProtectedFinder,
    ProtectedKind,
    ProtectedMatch,
    is_word,
    merged,
)
from triptych_documents.segments.segment import ORDINALS, InlineTag, ProtectedSpan, Segment
from triptych_documents.unit import Code, Piece, Role, joined, nests, partners

_FORM = r"(?:\{\d{1,9}\}|[\[\]]-?\d{1,9},\s?(?:\d{1,9}|\+?Inf|\*)[\[\]])\s"  # number of a plural form of Symfony or Laravel
_TARGET = r"[^`<>\n]{1,300}\s<[^`<>\n]{1,300}>`"
_TAG = re.compile(
    # A placeholder with a separator inside, as {{ name | upper }}, has no titles.
    rf"(?P<held>\{{(?=[^{{}}\n]{{0,600}}\}})[^{{}}\n]{{0,300}}(?:\s[{SEPARATOR}>]\s|\|)[^{{}}\n]{{0,300}}\}}"
    rf"|(?<!`)`(?=[^`\n]{{0,600}}`(?!`))[^`\n]{{0,300}}(?:\s[{SEPARATOR}>]\s|\|)[^`\n]{{0,300}}`)"
    r"|<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]{0,40}|\d{1,3})(?:\s[^<>\n]{0,500})?(?P<empty>/?)>"  # numbers: react-i18next
    r"|(?P<bold>(?<![\w*=~\\])(?:\*\*?|==|~~)(?=[\w\"'(\[{<%$`]))|(?P<end>(?<=[^\s*=~\\])(?:\*\*?|==|~~)(?![\w*=~]))"
    # Markdown above. Links: `text <target>`_ and :ref:`text <target>` of reStructuredText, [text](target) of Markdown.
    rf"|(?P<link>(?:(?<![`\w:]):(?:ref|doc|term|any|download|numref):`|(?<![`\w:])`(?={_TARGET}_))(?={_TARGET})"
    r"|\[(?=[^\[\]\n]{1,300}\]\([^()\s][^()\n]{0,500}\)))"
    r"|(?P<target>\s<[^`<>\n]{1,300}>`_{0,2}|\]\([^()\s][^()\n]{0,500}\))"
    # Between titles, as in Home | News and File > Open; dots before a page number; before code in reStructuredText.
    rf"|(?P<apart>(?<!\S)[{SEPARATOR}](?!\S)|(?<=\w\s)>(?=\s[A-Z]\w)|\.{{4,}}|\.(?: \.){{2,}}|(?<=\S)::(?=\s*(?:\n|\Z))"
    rf"|(?<=[\w.!?)])\|(?:{_FORM}|(?=[A-Z%{{]))|^{_FORM}(?=[^|]{{1,300}}\|))"
    rf"|(?:\S\ufe0f|[{SYMBOL}])[{SYMBOL}\u200d\ufe0f\u20e3\U000e0020-\U000e007f]*"
)
_BREAKS = frozenset(("br", "hr", "p", "li", "div", "td", "tr", "ul", "ol"))  # HTML tags between sentences
_EMPTY = frozenset(("br", "hr", "img", "wbr", "input"))  # HTML tags without an end tag
_at, _start = attrgetter("at"), attrgetter("start")  # of tags, of protected items
_MARK = re.compile(r"[^\w\s]{0,2}[\d*†‡®]{1,3}[^\w\s]{0,2}")
_MARKED = re.compile(r"(?:[^\W\d_]{4}|[.,;:!?\"”’)\]])$")  # letters of a word that is no formula, or the end of a clause
_VARIABLE = re.compile(r"(?<!\w)[A-Za-z\u0391-\u03c9]$")  # a single letter, Latin or Greek
_INDEX = re.compile(rf"(?!(?:{'|'.join(ORDINALS)})$)[A-Za-z\u0391-\u03c9]{{1,3}}")
_LONGEST_FORMULA, _FEW_LETTERS = 20, 3  # characters; letters of a formula that has no capitals
_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "‘": "’", "«": "»", "(": ")", "[": "]", "「": "」"}
_PAIRED = "\"'“”„‘’«»()[]"


def read_segment(pieces: Sequence[Piece], finder: ProtectedFinder) -> Segment:
    """Return the whole unit as one segment."""
    if len(pieces) == 1 and isinstance(text := pieces[0], str) and not finder.may_have(text):
        return Segment(text)
    tokens = list(_tokens(pieces))
    flow, marks = _SegmentBuilder(_tag_pairs(tokens)), _marks(tokens)
    for place, token in enumerate(tokens):
        flow.add(place, token, place in marks)
    text, tags = "".join(flow.texts), flow.tags
    protected = flow.protected
    formulas = _formulas(tags, text)
    if formulas or finder.may_have(text):
        found = merged(formulas, list(_found(finder, tags, text)))
        tags, protected, found = _absorbed(found, tags, protected, text)
        protected = _fitted(found, protected, tags, text)
    return Segment(text, tuple(tags), tuple(_widened(_merged(protected, tags, text), tags, text)))


Token = str | Code | re.Match[str]  # a match is a tag or a symbol in the text


def _tokens(pieces: Sequence[Piece]) -> Iterator[Token]:
    has_quotes = any("«" in piece for piece in pieces if isinstance(piece, str))
    for piece in pieces:
        if isinstance(piece, Code):
            yield piece
            continue
        start = 0
        for tag in _TAG.finditer(piece):
            if tag["held"] or (has_quotes and tag[0] == "»"):  # a quotation mark
                continue
            yield piece[start : tag.start()]
            yield tag
            start = tag.end()
        yield piece[start:]


def _tag_pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the pair number of each paired tag, by token index; negative, because pair numbers of codes are not."""
    pairs: dict[int, int] = {}
    for place, start in partners(map(_name, tokens)).items():
        if not isinstance(tokens[place], Code):
            pairs[start] = pairs[place] = -1 - start
    return pairs


def _name(token: Token) -> tuple[str, Role]:
    if isinstance(token, str):
        return "", Role.ALONE
    if isinstance(token, Code):
        return f"#{token.pair}", token.role
    if token["bold"] or token["end"]:
        return token[0], Role.OPEN if token["bold"] else Role.CLOSE
    if token["link"] or token["target"]:
        return "[" if token[0][0] in "[]" else "`", Role.OPEN if token["link"] else Role.CLOSE
    name = token["name"]
    if name is None or token["empty"] or name.lower() in _EMPTY:
        return "", Role.ALONE
    return name, Role.CLOSE if token["close"] else Role.OPEN


def _marks(tokens: Sequence[Token]) -> set[int]:
    """Return the tokens of marks behind words, which the model does not see: `word<sup>2</sup>`, `end.<sup>[1]</sup>`."""
    found: set[int] = set()
    names = list(map(_name, tokens))
    for place, mark in enumerate(tokens):
        if not isinstance(mark, str) or not _MARK.fullmatch(mark):
            continue
        first, last = place, place + 1
        while (
            first > 0
            and last < len(tokens)
            and names[first - 1][1] is Role.OPEN
            and names[last] == (names[first - 1][0], Role.CLOSE)
        ):
            first, last = first - 1, last + 1
        before, after = (tokens[at] if 0 <= at < len(tokens) else "" for at in (first - 1, last))
        is_behind = isinstance(before, str) and _MARKED.search(before[-4:]) is not None
        if first < place and is_behind and not (isinstance(after, str) and after[:1].isalnum()):
            found.update(range(first, last))
    return found


def _found(finder: ProtectedFinder, tags: Sequence[InlineTag], text: str) -> Iterator[ProtectedMatch]:
    """Find protected text; none continues across fixed tags: `One<br>Two` is not OneTwo."""
    edges = dict.fromkeys((0, *(tag.at for tag in tags if tag.fixed), len(text)))
    for start, end in pairwise(edges):
        for one in finder.find(text[start:end]):
            yield replace(one, start=start + one.start, end=start + one.end) if start else one


def _formulas(tags: Sequence[InlineTag], text: str) -> Sequence[ProtectedMatch]:
    """Find short words with a number or an index in tags: `H<sub>2</sub>O`, `10<sup>6</sup>`, `V<sub>max</sub>`."""
    formulas: list[ProtectedMatch] = []
    for left, right in pairwise(tags):
        start, end = left.at, right.at
        if left.role is not Role.OPEN or right.pair != left.pair:
            continue
        is_index = _is_index(text, start, end)
        if not is_index and not text[start:end].strip("+-−").isdigit():
            continue
        while start and text[start - 1].isalnum() and end - start <= _LONGEST_FORMULA:
            start -= 1
        while text[end : end + 1].isalnum() and end - start <= _LONGEST_FORMULA:
            end += 1
        letters = sum(map(str.isalpha, text[start:end]))
        is_formula = is_index or letters <= _FEW_LETTERS or sum(map(str.isupper, text[start:end])) > 1
        if start < left.at and end - start <= _LONGEST_FORMULA and is_formula and not (formulas and formulas[-1].end > start):
            formulas.append(ProtectedMatch(start, end, ProtectedKind.NAME if letters else ProtectedKind.COUNT))
    return formulas


def _is_index(text: str, start: int, end: int) -> bool:
    """Return whether this part of a text is the index of a single letter."""
    if text[end : end + 1].isalnum() or not _VARIABLE.search(text[max(0, start - 2) : start]):
        return False
    return _INDEX.fullmatch(text[start:end]) is not None


class _SegmentBuilder:
    def __init__(self, tag_pairs: Mapping[int, int]) -> None:
        self._tag_pairs = tag_pairs
        self._at = 0
        self.texts: list[str] = []
        self.tags: list[InlineTag] = []
        self.protected: list[ProtectedSpan] = []

    def add(self, place: int, token: Token, is_mark: bool) -> None:
        if is_mark:
            self.tags.append(InlineTag(self._at, token[0] if isinstance(token, re.Match) else token, Role.ALONE))
        elif isinstance(token, str):
            self._add_text(token)
        elif isinstance(token, Code):
            self._add_code(token)
        else:
            self._add_tag(place, token)

    def _add_code(self, code: Code) -> None:
        if code.fixed or code.role is not Role.ALONE or not code.shown:
            self.tags.append(InlineTag(self._at, code, code.role, code.pair, code.fixed))
        elif code.shown.isspace():
            self.tags.append(InlineTag(self._at, code, code.role, space=True))
            self._add_text(" ")
        else:
            kind = ProtectedKind.AMOUNT if code.shown.isdecimal() else ProtectedKind.NAME
            self.protected.append(ProtectedSpan(self._at, self._at + len(code.shown), kind, (code,)))
            self._add_text(code.shown)

    def _add_tag(self, place: int, tag: re.Match[str]) -> None:
        name = (tag["name"] or "").lower()
        if name in _BREAKS:
            self.tags.append(InlineTag(self._at, tag[0], Role.ALONE, fixed=True))
        elif place in self._tag_pairs:
            self.tags.append(InlineTag(self._at, tag[0], _name(tag)[1], self._tag_pairs[place]))
        elif not (name or tag["link"] or tag["target"] or tag[0] in ("*", "**")):
            self.tags.append(InlineTag(self._at, tag[0], Role.ALONE, fixed=bool(tag["apart"])))
        elif tag["empty"] or tag["close"] or name in _EMPTY:
            self.tags.append(InlineTag(self._at, tag[0], Role.ALONE))
        else:  # such as <file>, which is visible text, and halves of pairs that are none
            self._add_text(tag[0])

    def _add_text(self, text: str) -> None:
        self.texts.append(text)
        self._at += len(text)


def _absorbed(
    found: Sequence[ProtectedMatch], tags: list[InlineTag], codes: list[ProtectedSpan], text: str
) -> tuple[list[InlineTag], list[ProtectedSpan], list[ProtectedMatch]]:
    """Merge matches and the codes inside of them into one item, unless only one half of a pair is inside."""
    gone_marks: set[int] = set()
    gone_codes: set[int] = set()
    absorbing: list[ProtectedSpan] = []
    rest: list[ProtectedMatch] = []
    for one in found:
        first, last = bisect_right(tags, one.start, key=_at), bisect_left(tags, one.end, key=_at)
        head, tail = bisect_left(codes, one.start, key=_start), bisect_left(codes, one.end, key=_start)
        while (
            last < len(tags) and (tags[last].at, tags[last].role) == (one.end, Role.CLOSE) and not _is_closed(tags[first:last])
        ):
            last += 1
        inner, shown = tags[first:last], codes[head:tail]
        whole = (not shown or shown[-1].end <= one.end) and (not head or codes[head - 1].end <= one.start)
        if (
            one.kind not in (ProtectedKind.NAME, ProtectedKind.COUNT)
            or not (inner or shown)
            or not whole
            or not _is_closed(inner)
        ):
            rest.append(one)
            continue
        gone_marks.update(range(first, last))
        gone_codes.update(range(head, tail))
        part = Segment(text, tuple(inner), tuple(shown)).cut([(one.start, 0), (one.end, len(inner))])[1]
        absorbing.append(ProtectedSpan(one.start, one.end, one.kind, part.pieces))
    kept = [code for index, code in enumerate(codes) if index not in gone_codes]
    protected = sorted((*kept, *absorbing), key=_start)
    return [tag for index, tag in enumerate(tags) if index not in gone_marks], protected, rest


def _is_closed(tags: Sequence[InlineTag]) -> bool:
    """Return whether no tag is fixed and no pair continues outside."""
    return not any(tag.fixed for tag in tags) and nests((tag.role, tag.pair) for tag in tags)


def _fitted(
    found: Sequence[ProtectedMatch], codes: Sequence[ProtectedSpan], tags: Sequence[InlineTag], text: str
) -> list[ProtectedSpan]:
    """Split matches at codes: codes are items of their own, or stay between the parts."""
    protected = list(codes)
    borders = sorted({place for item in codes for place in (item.start, item.end)} | {tag.at for tag in tags})
    covered = {place for item in codes for place in range(item.start, item.end)}
    amounts = {item.end for item in codes if item.kind is ProtectedKind.AMOUNT}
    for one in found:
        if one.kind in WORD_KINDS and not covered.isdisjoint(range(one.start, one.end)):
            continue  # the rest of `FileName`s is no word
        inner = borders[bisect_right(borders, one.start) : bisect_left(borders, one.end)]
        for start, end in pairwise((one.start, *inner, one.end)):
            if start not in covered and not (start in amounts and text[start:end] in ORDINALS):
                protected.append(ProtectedSpan(start, end, one.kind, (text[start:end],), None if inner else one.term))
    protected.sort(key=_start)
    return [item for item in protected if item.kind is not ProtectedKind.TERM or item.term is not None]


def _merged(protected: Sequence[ProtectedSpan], tags: Sequence[InlineTag], text: str) -> list[ProtectedSpan]:
    """Merge adjacent items with neither words nor tags between them."""
    groups: list[list[ProtectedSpan]] = []
    places = {tag.at for tag in tags}
    for item in protected:
        if groups and _mergeable(groups[-1][-1], item, places, text):
            groups[-1].append(item)
        else:
            groups.append([item])
    return [group[0] if len(group) == 1 else _one(group, text) for group in groups]


def _one(group: Sequence[ProtectedSpan], text: str) -> ProtectedSpan:
    pieces: list[Piece] = [*group[0].pieces]
    for left, right in pairwise(group):
        pieces += (text[left.end : right.start], *right.pieces)
    return ProtectedSpan(group[0].start, group[-1].end, ProtectedKind.NAME, joined(pieces))


def _mergeable(left: ProtectedSpan, right: ProtectedSpan, places: set[int], text: str) -> bool:
    numbers = left.kind is ProtectedKind.NUMBER and right.kind is ProtectedKind.NUMBER
    if left.kind in WORD_KINDS or right.kind in WORD_KINDS or numbers:
        return False
    between = text[left.end : right.start]
    if ProtectedKind.NUMBER in (left.kind, right.kind) and between:
        return False
    if len(between) > 3 or any(sign.isalnum() or sign in "\n.!?" for sign in between):
        return False
    if sum(sign in _PAIRED for sign in between) % 2:  # as in `"%s": %s`, of which the model would lose the other mark
        return False
    return not any(place in places for place in range(left.end, right.start + 1))


def _widened(protected: Sequence[ProtectedSpan], tags: Sequence[InlineTag], text: str) -> Iterator[ProtectedSpan]:
    """Extend items by adjacent letters, and by surrounding quotation marks and brackets."""
    places = {tag.at for tag in tags}
    taken = 0
    starts = [item.start for item in protected]
    for index, item in enumerate(protected):
        limit = starts[index + 1] if index + 1 < len(starts) else len(text)
        start, end = item.start, item.end
        if item.kind in (ProtectedKind.NAME, ProtectedKind.COUNT):
            while start > taken and start not in places and is_word(text[start - 1]):
                start -= 1
            while end < limit and end not in places and is_word(text[end]):
                end += 1
            around = start not in places and end not in places and taken < start and end < limit
            if around and _QUOTES.get(text[start - 1]) == text[end]:
                start, end = start - 1, end + 1
        taken = end
        yield ProtectedSpan(start, end, item.kind, (text[start : item.start], *item.pieces, text[item.end : end]), item.term)
