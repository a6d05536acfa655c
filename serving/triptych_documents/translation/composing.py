"""A sentence's translation as pieces: things in the places of their words, marks where they belong."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from triptych_documents.segments.segment import InlineTag, Segment
from triptych_documents.sentences import Alignment, Span
from triptych_documents.translation.masking import MaskedSentence, Substitution
from triptych_documents.translation.tag_placement import PlacedTag, TagNode, TagPlacer, TagPoint, build_tag_tree
from triptych_documents.translation.word_links import link
from triptych_documents.unit import Piece, Role, joined
from triptych_text.sentences import is_unspaced

_OPENING = "([{«„“‘\"'¿¡/"
_CLOSING = ".,;:!?)]}»”’…/"


@dataclass(frozen=True, slots=True)
class ComposedTranslation:
    """Pieces of a translation.

    Args:
        pieces: with all codes of the source.
        sure: marks are where the alignment has them.
        things_sure: so are things that were left out.
    """

    pieces: tuple[Piece, ...]
    sure: bool
    things_sure: bool


@dataclass(frozen=True)
class CheckedTranslation:
    """A wording's answer.

    Args:
        text: in the target language.
        alignment: None where there is none.
        anchors: places in it that come from places of the wording for certain.
        replaced: what stands in the place of some words.
    """

    text: str
    alignment: Alignment | None
    anchors: Mapping[Span, Span]
    replaced: Mapping[Span, tuple[Piece, ...]]


def compose(segment: Segment, wording: MaskedSentence, translation: CheckedTranslation) -> ComposedTranslation:
    """Put back what the model did not see.

    Args:
        segment: a sentence.
        wording: as it was asked.
        translation: of the wording.
    """
    replaced, rest = _spaces(segment, translation)
    points = _points(segment, wording)
    if not points:
        pieces = list(_Writer(translation.text, (), replaced).between(0, len(translation.text)))
        return ComposedTranslation(joined([*pieces, *rest]), True, True)
    links = link(wording.text, translation.text, translation.alignment, translation.anchors)
    nodes = build_tag_tree(points, wording.text)
    crossed = nodes is None
    if nodes is None:
        nodes = [TagNode(point.at, point.at, point.pieces, alone=True, leans=point.leans) for point in points]
    placed = TagPlacer(wording.text, translation.text, links).place(nodes)
    if crossed:
        placed = _in_order(nodes, placed)
    writer = _Writer(translation.text, links.target, replaced)
    pieces = writer.write(placed)
    sure = links.known and all(one.sure for one in _all(placed))
    out = any(said.way is Substitution.OUT for said in wording.said)
    return ComposedTranslation(joined([*pieces, *rest]), sure, sure or not out)


def is_placing(segment: Segment) -> bool:
    """It has marks whose place only an alignment can tell."""
    return any(not mark.space for mark in segment.marks)


def _all(placed: Sequence[PlacedTag]) -> Iterator[PlacedTag]:
    for one in placed:
        yield one
        yield from _all(one.inner)


def _points(segment: Segment, wording: MaskedSentence) -> list[TagPoint]:
    """Marks and what was left out, in the order of the source."""
    out = [said for said in wording.said if said.way is Substitution.OUT]
    ranked = [
        (mark.at, 0, TagPoint(min(place, len(wording.text)), mark.role, mark.pair, (mark.piece,), _leans(segment.text, mark)))
        for mark, place in zip(segment.marks, wording.places, strict=True)
        if not mark.space
    ]
    ranked += [
        (said.thing.start, 1, TagPoint(min(said.span[0], len(wording.text)), Role.ALONE, -1, said.thing.pieces)) for said in out
    ]
    ranked.sort(key=lambda one: one[:2])  # stable: marks of one place stay in order
    return [point for _, _, point in ranked]


def _leans(text: str, mark: InlineTag) -> int:
    """To which word a mark belongs."""
    before = text[mark.at - 1] if mark.at else " "
    after = text[mark.at] if mark.at < len(text) else " "
    if before.isspace() and after.isspace():
        return 0
    if before.isspace() or after.isspace():
        return 1 if before.isspace() else -1
    return 1 if after.isalnum() and not before.isalnum() else -1


def _spaces(segment: Segment, translation: CheckedTranslation) -> tuple[dict[Span, tuple[Piece, ...]], list[Piece]]:
    """White space that is markup in the places of other white space, as far along as in the source; and what is left over."""
    replaced = dict(translation.replaced)
    marks = [mark for mark in segment.marks if mark.space]
    if not marks:
        return replaced, []
    text, taken = translation.text, sorted(translation.replaced)
    gaps = [place for place, sign in enumerate(text) if sign == " " and not _within(taken, place)]
    scale, used = len(text) / max(1, len(segment.text)), 0
    for index, mark in enumerate(marks):
        last = len(gaps) - (len(marks) - index)  # others come after
        if used >= len(gaps):
            return replaced, [mark.piece for mark in marks[index:]]
        found = _nearest(gaps, mark.at * scale, used, max(used, last))
        replaced[gaps[found], gaps[found] + 1] = (mark.piece,)
        used = found + 1
    return replaced, []


def _within(spans: Sequence[Span], place: int) -> bool:
    index = bisect_left(spans, (place + 1, 0)) - 1
    return index >= 0 and spans[index][1] > place


def _nearest(places: Sequence[int], wanted: float, first: int, last: int) -> int:
    index = min(max(bisect_left(places, wanted), first), last)
    if index > first and abs(places[index - 1] - wanted) <= abs(places[index] - wanted):
        index -= 1
    return index


def _in_order(nodes: Sequence[TagNode], placed: Sequence[PlacedTag]) -> tuple[PlacedTag, ...]:
    """Marks that cross each other keep the order of the source, so that each opens before it closes."""
    place_of = {id(one.node): one for one in placed}
    ordered, least = [], 0
    for node in nodes:
        least = max(least, place_of[id(node)].first)
        ordered.append(PlacedTag(node, least, least, sure=place_of[id(node)].sure))
    return tuple(ordered)


class _Writer:
    """Writes a translation with what was placed in it.

    Args:
        text: the translation.
        words: its words' places.
        replaced: what stands in the place of some of it.
    """

    def __init__(self, text: str, words: Sequence[Span], replaced: Mapping[Span, tuple[Piece, ...]]) -> None:
        self._text, self._words = text, words
        self._replaced = sorted(replaced.items())
        self._pieces: list[Piece] = []
        self._at = 0

    def write(self, placed: Sequence[PlacedTag]) -> list[Piece]:
        self._write(placed)
        self._pieces += self.between(self._at, len(self._text))
        return self._pieces

    def _write(self, placed: Sequence[PlacedTag]) -> None:
        for one in placed:
            if one.node.alone:
                self._write_alone(one)
                continue
            if one.node.opens:
                self._go_to(self._start(one.first) if one.first < one.last else self._gap(one.first, one.node.leans))
            self._pieces += one.node.before
            self._write(one.inner)
            if one.node.closes and one.first < one.last:
                self._go_to(self._end(one.last - 1))
            self._pieces += one.node.after

    def _write_alone(self, one: PlacedTag) -> None:
        if one.node.leans:
            self._go_to(self._gap(one.first, one.node.leans))
            self._pieces += one.node.before
            return
        place = self._gap(one.first, -1) if one.first else self._gap(0, 1)
        self._go_to(place)
        if one.first and self._needs_space_before():
            self._pieces.append(" ")
        self._pieces += one.node.before
        after = self._text[self._at : self._at + 1]
        if after and not after.isspace() and after not in _CLOSING and not is_unspaced(after):
            self._pieces.append(" ")

    def _needs_space_before(self) -> bool:
        before = self._text[self._at - 1 : self._at]
        return bool(before) and not before.isspace() and before not in _OPENING and not is_unspaced(before)

    def _gap(self, word: int, leans: int) -> int:
        if leans < 0:
            return self._end(word - 1) if word else 0
        return self._start(word)

    def _start(self, word: int) -> int:
        return self._words[word][0] if word < len(self._words) else len(self._text)

    def _end(self, word: int) -> int:
        return self._words[word][1] if word >= 0 else 0

    def _go_to(self, place: int) -> None:
        if place > self._at:
            self._pieces += self.between(self._at, place)
            self._at = place

    def between(self, start: int, end: int) -> Iterator[Piece]:
        """The text from here to there."""
        at = start
        for index in range(bisect_left(self._replaced, ((start, start), ())), len(self._replaced)):
            (first, last), pieces = self._replaced[index]
            if last > end:
                break
            yield self._text[at:first]
            yield from pieces
            at = last
        yield self._text[at:end]
