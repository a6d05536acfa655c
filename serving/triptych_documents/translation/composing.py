"""Composing: put protected items and tags back into the translation of a masked sentence."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from triptych_documents.segments.segment import InlineTag, Segment
from triptych_documents.sentences import Alignment, Span
from triptych_documents.translation.checking import CheckResult
from triptych_documents.translation.masking import MaskedSentence, Substitution
from triptych_documents.translation.tag_placement import PlacedTag, TagNode, TagPlacer, TagPoint, build_tag_tree
from triptych_documents.translation.word_links import link
from triptych_documents.unit import Piece, Role, joined
from triptych_text.sentences import is_unspaced

Replacements = Mapping[Span, tuple[Piece, ...]]  # pieces to put in place of spans of a translation

_OPENING = "([{«„“‘\"'¿¡/"
_CLOSING = ".,;:!?)]}»”’…/"


@dataclass(frozen=True, slots=True)
class ComposedTranslation:
    """Pieces of a translated sentence."""

    pieces: tuple[Piece, ...]  # with all codes of the source
    sure: bool  # all tags were placed by alignment
    protected_sure: bool  # so were left-out items


def compose(
    segment: Segment, sentence: MaskedSentence, text: str, alignment: Alignment | None, checked: CheckResult
) -> ComposedTranslation:
    """Put back into the translation, `text`, everything that the model did not see."""
    replaced, rest = _spaces(segment, text, checked.replaced)
    points = _points(segment, sentence)
    if not points:
        pieces = list(_Writer(text, (), replaced).between(0, len(text)))
        return ComposedTranslation(joined([*pieces, *rest]), True, True)
    links = link(sentence.text, text, alignment, checked.anchors)
    nodes = build_tag_tree(points, sentence.text)
    crossed = nodes is None
    if nodes is None:
        nodes = [TagNode(point.at, point.at, point.pieces, alone=True, leans=point.leans) for point in points]
    placed = TagPlacer(sentence.text, text, links).place(nodes)
    if crossed:
        placed = _in_order(nodes, placed)
    writer = _Writer(text, links.target, replaced)
    pieces = writer.write(placed)
    sure = links.known and all(one.sure for one in _all(placed))
    out = any(masked.substitution is Substitution.OUT for masked in sentence.spans)
    return ComposedTranslation(joined([*pieces, *rest]), sure, sure or not out)


def _all(placed: Sequence[PlacedTag]) -> Iterator[PlacedTag]:
    for one in placed:
        yield one
        yield from _all(one.inner)


def _points(segment: Segment, sentence: MaskedSentence) -> list[TagPoint]:
    out = [masked for masked in sentence.spans if masked.substitution is Substitution.OUT]
    ranked = [
        (tag.at, 0, TagPoint(min(place, len(sentence.text)), tag.role, tag.pair, (tag.piece,), _leans(segment.text, tag)))
        for tag, place in zip(segment.tags, sentence.tag_offsets, strict=True)
        if not tag.space
    ]
    ranked += [
        (masked.item.start, 1, TagPoint(min(masked.span[0], len(sentence.text)), Role.ALONE, -1, masked.item.pieces))
        for masked in out
    ]
    ranked.sort(key=lambda one: one[:2])  # stable: tags at one place stay in order
    return [point for _, _, point in ranked]


def _leans(text: str, tag: InlineTag) -> int:
    """Return which word a tag belongs to: -1 the one before, 1 the one after, 0 neither."""
    before = text[tag.at - 1] if tag.at else " "
    after = text[tag.at] if tag.at < len(text) else " "
    if before.isspace() and (after.isspace() or after in _CLOSING):
        return 0
    if before.isspace() or after.isspace():
        return 1 if before.isspace() else -1
    return 1 if after.isalnum() and not before.isalnum() else -1


def _spaces(segment: Segment, text: str, replaced: Replacements) -> tuple[Replacements, list[Piece]]:
    """Put white-space markup in place of other white space at the same relative position; also return what is left over."""
    tags = [tag for tag in segment.tags if tag.space]
    if not tags:
        return replaced, []
    taken, replaced = sorted(replaced), dict(replaced)
    gaps = [place for place, sign in enumerate(text) if sign == " " and not _within(taken, place)]
    scale, used = len(text) / max(1, len(segment.text)), 0
    for index, tag in enumerate(tags):
        last = len(gaps) - (len(tags) - index)  # leave gaps for the tags that follow
        if used >= len(gaps):
            return replaced, [tag.piece for tag in tags[index:]]
        found = _nearest(gaps, tag.at * scale, used, max(used, last))
        replaced[gaps[found], gaps[found] + 1] = (tag.piece,)
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
    """Place crossing tags in source order, so that each opens before it closes."""
    place_of = {id(one.node): one for one in placed}
    ordered, least = [], 0
    for node in nodes:
        least = max(least, place_of[id(node)].first)
        ordered.append(PlacedTag(node, least, least, sure=place_of[id(node)].sure))
    return tuple(ordered)


class _Writer:
    """Writes a translation with its tags."""

    def __init__(self, text: str, words: Sequence[Span], replaced: Replacements) -> None:
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
        opens = before in _OPENING and not (before == '"' and self._text.count('"', 0, self._at) % 2 == 0)
        return bool(before) and not before.isspace() and not opens and not is_unspaced(before)

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
        """Yield the pieces of a stretch of the translation."""
        at = start
        for index in range(bisect_left(self._replaced, ((start, start), ())), len(self._replaced)):
            (first, last), pieces = self._replaced[index]
            if last > end:
                break
            yield self._text[at:first]
            yield from pieces
            at = last
        yield self._text[at:end]
