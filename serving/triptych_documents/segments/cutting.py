"""Splitting segments: at fixed tags, lines, columns and sentence ends; long sentences at clauses, then between words."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from triptych_documents.segments.protected import WORD_KINDS, ProtectedKind
from triptych_documents.segments.segment import InlineTag, Segment, with_tail
from triptych_documents.unit import Role, raw_text
from triptych_text.sentences import UNSPACED, Splitter

Cut = tuple[int, int]  # offset in the text, and number of tags before it

# A text without a match is one sentence. Starts with a character class, which the regex engine searches fast.
END = re.compile(
    r"[.!?…。！？।؟\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
    r"(?:(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])|[\"'”’»)\]]*\s|(?<=[。！？।؟]).)"
)
_at = attrgetter("at")  # of a tag
_COLUMN = re.compile(r"\t\s*|[ ]{3,}")
_CLAUSE = re.compile(r"[,;:–—][\"'”’»)\]]*\s+|[，、；：]|[)\]”»]\s+|\s+(?=[(\[“„«])")
_OTHER_SPACE = re.compile(r"[^\S ]")
_WORD = re.compile(r"\s+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_BEFORE = re.compile(r"\s*[:=|–—>]+\s+|[.)]\s+")  # after a leading item: label, list number
_CRUMB = re.compile(r"\s+[/>]\s+")  # other separators are fixed tags
_AFTER = re.compile(r"(?:[:=|]|\s[–—>])\s+$")  # before a trailing item


def split_sentences(segment: Segment, splitter: Splitter, *, keeps_space: bool) -> list[Segment]:
    """Split a unit into sentences; white space stays with the sentence before it."""
    parts = segment.cut(_fixed(segment)) if segment.tags else [segment]
    if keeps_space:
        parts = [line for part in parts for line in part.cut(_columns(part))]
    if segment.protected:
        parts = [labelled for part in parts for labelled in part.cut(_labels(part))]
    sentences = [sentence for part in parts for sentence in part.cut(_ends(part, splitter, keeps_space=keeps_space))]
    return [one for sentence in sentences for one in (sentence.cut(_elements(sentence)) if sentence.tags else [sentence])]


def split_in_half(segment: Segment) -> list[Segment]:
    """Split in two near the middle, at a clause or else between words. A single word stays whole."""
    middle, length = len(segment.text) // 2, len(segment.text)
    clause = _nearest(segment, _CLAUSE.finditer(segment.text), middle)
    if clause is not None and length <= 4 * clause <= 3 * length:
        return segment.cut([clause_cut(segment, clause)])
    word = _nearest(segment, _WORD.finditer(segment.text), middle)
    if word is None and _UNSPACED.search(segment.text) and length > 1 and not _inside(segment, middle):
        word = middle
    return [segment] if word is None else segment.cut([clause_cut(segment, word)])


def split_by_length(segment: Segment, longest: int) -> list[Segment]:
    """Split into parts of at most `longest` characters where possible."""
    text, cuts, start = segment.text, [], 0
    while len(text) - start > longest:
        place = _last(segment, _CLAUSE, start, longest, longest // 2) or _last(segment, _WORD, start, longest)
        if place is None and _UNSPACED.match(text, start) and not _inside(segment, start + longest):
            place = start + longest
        if place is None:
            ends = (match.end() for match in _WORD.finditer(text, start + longest))
            place = next((end for end in ends if not _inside(segment, end)), None)
        if place is None or place >= len(text):
            break
        cuts.append(clause_cut(segment, place))
        start = place
    return segment.cut(cuts)


def split_around_protected(segment: Segment) -> list[Segment]:
    """Split into protected items and the text between them."""
    cuts: list[Cut] = [(0, 0)]
    for item in segment.protected:
        if item.kind is not ProtectedKind.TERM:
            for place in (item.start, with_tail(segment, item).end):
                cut = _between(segment.tags, place, place)
                if cut > cuts[-1]:
                    cuts.append(cut)
    return segment.cut(cuts[1:])


def clause_cut(segment: Segment, place: int) -> Cut:
    """Return the cut at a place; tags in the white space before it go to the side that they belong to."""
    before = len(segment.text[:place].rstrip()) if place and segment.text[place - 1].isspace() else place
    return _between(segment.tags, before, place)


def _fixed(segment: Segment) -> Iterator[Cut]:
    """Yield cuts before and after each fixed tag."""
    done = (0, 0)
    for index, tag in enumerate(segment.tags):
        if tag.fixed:
            for cut in ((tag.at, index), (tag.at, index + 1)):
                if cut > done:
                    yield (done := cut)


def _elements(segment: Segment) -> list[Cut]:
    """Return cuts between elements side by side with no word between them: the links of a menu are no sentence.

    The last of several links behind each other is often the page itself, without a link: `<a>Home</a> / <a>Docs</a> / API`.
    """
    tags, text = segment.tags, segment.text
    first, after = 0, len(tags)
    is_inner = not any(map(str.isalnum, text[tags[-1].at :]))
    while is_inner and first < after - 1 and tags[first].role is Role.OPEN and tags[after - 1].pair == tags[first].pair:
        first, after = first + 1, after - 1  # inside of one element around all others
    cuts: list[Cut] = []
    depth = at = count = 0
    for index, tag in enumerate(tags[first:after], first):
        if tag.role is Role.OPEN and not depth:
            between = text[at : tag.at]
            if any(map(str.isalnum, between)) or (count and not (any(map(str.isspace, between)) or _is_link(tag))):
                return []
            cuts.append((tag.at, index))
            count += 1
        depth += (tag.role is Role.OPEN) - (tag.role is Role.CLOSE)
        if depth < 0:  # of an element that starts in another sentence
            return []
        if tag.role is Role.CLOSE and not depth:
            cuts.append((tag.at, index + 1))
            at = tag.at
    if count and any(map(str.isalnum, text[at:])) and (separator := _CRUMB.match(text, at)):
        is_trail = all(_is_link(tag) for tag in tags if tag.role is Role.OPEN)
        return sorted({*cuts[1:], (separator.end(), len(tags))}) if is_trail else []
    return [] if count < 2 or any(map(str.isalnum, text[at:])) else sorted(set(cuts[1:]))


def _is_link(tag: InlineTag) -> bool:
    return raw_text([tag.piece]).startswith(("<a ", "<a>", "["))


def _columns(segment: Segment) -> list[Cut]:
    return [clause_cut(segment, match.end()) for match in _COLUMN.finditer(segment.text) if not _inside(segment, match.end())]


def _labels(segment: Segment) -> Iterator[Cut]:
    """Yield cuts after a leading and before a trailing protected item that punctuation separates from the text."""
    protected = [item for item in segment.protected if item.kind not in WORD_KINDS]
    if not protected:
        return
    first, last, text, end = protected[0], protected[-1], segment.text, 0
    if not text[: first.start].strip() and (match := _BEFORE.match(text, first.end)) and not _inside(segment, match.end()):
        yield clause_cut(segment, end := match.end())
    words_behind = text[last.end :].strip(" .!?)")
    if not words_behind and last.start > end and (match := _AFTER.search(text, max(end, last.start - 4), last.start)):
        yield clause_cut(segment, match.end())


def _ends(segment: Segment, splitter: Splitter, *, keeps_space: bool) -> Iterator[Cut]:
    text = segment.text if keeps_space else _OTHER_SPACE.sub(" ", segment.text)
    if not END.search(text) and not splitter.has_mark(text):
        return
    split = splitter.split(_masked(segment, text))
    at = 0
    for sentence, gap in zip(split.texts, split.gaps, strict=False):
        start, mark = at + len(gap), gap.lstrip()
        before = start - len(mark)
        if at and not _inside(segment, before):  # the splitter may end a sentence before "/" in `./run.sh`
            yield _between(segment.tags, at, before)
        if mark and not _inside(segment, start) and not _opens(segment.tags, at, start):
            yield clause_cut(segment, start)
        at = start + len(sentence)


def _masked(segment: Segment, text: str) -> str:
    """Replace protected items that contain white space, so that no sentence ends inside of them."""
    parts, at = [], 0
    for item in segment.protected:
        kept = text[item.start : item.end]
        if " " in kept or "\n" in kept:
            parts += [text[at : item.start], "x" * len(kept)]
            at = item.end
    return "".join((*parts, text[at:]))


def _between(tags: Sequence[InlineTag], before: int, place: int) -> Cut:
    """Choose a cut in the white space from `before` to `place`: an opening tag and everything after it go to the right."""
    index = bisect_left(tags, before, key=_at)
    while index < len(tags) and tags[index].at <= place:
        tag = tags[index]
        if tag.role is Role.OPEN and not _closes(tags, index, place):
            return tag.at, index
        if tag.role is Role.ALONE and before < tag.at == place:
            return place, index
        index += 1
    return place, index


def _opens(tags: Sequence[InlineTag], start: int, end: int) -> bool:
    """Return whether a pair opens in this part of the text that does not close in it."""
    places = range(bisect_left(tags, start, key=_at), bisect_left(tags, end, key=_at))
    return any(tags[index].role is Role.OPEN and not _closes(tags, index, end) for index in places)


def _closes(tags: Sequence[InlineTag], index: int, place: int) -> bool:
    """Return whether the pair that opens here is closed before the place, so that it is empty."""
    pair = tags[index].pair
    after = tags[index + 1 : bisect_right(tags, place, key=_at)]
    return any(tag.role is Role.CLOSE and tag.pair == pair for tag in after)


def _inside(segment: Segment, place: int) -> bool:
    """Return whether the place is inside a protected item."""
    index = bisect_left(segment.protected, place, key=lambda item: item.start) - 1
    return index >= 0 and segment.protected[index].end > place


def _nearest(segment: Segment, matches: Iterable[re.Match[str]], middle: int) -> int | None:
    length = len(segment.text)
    places = (match.end() for match in matches if match.start() and match.end() < length and not _inside(segment, match.end()))
    return min(places, key=lambda place: abs(place - middle), default=None)


def _last(segment: Segment, pattern: re.Pattern[str], start: int, longest: int, least: int = 0) -> int | None:
    """Return the last match end that makes a part of `least` to `longest` characters."""
    found = None
    for match in pattern.finditer(segment.text, start + 1, start + longest):
        if match.end() - start >= least and not _inside(segment, match.end()):
            found = match.end()
    return found
