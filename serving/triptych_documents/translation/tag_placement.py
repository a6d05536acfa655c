"""Tag placement: each pair of tags goes around the words that come from those it enclosed in the source, properly nested."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import mul

from triptych_documents.translation.word_links import WordLinks
from triptych_documents.unit import Piece, Role


@dataclass(frozen=True, slots=True)
class TagPoint:
    """A tag, or a left-out item, at its place in a masked sentence."""

    at: int
    role: Role
    pair: int
    pieces: tuple[Piece, ...]
    leans: int = 0  # standalone: -1 belongs to the word before, 1 to the word after, 0 to neither


@dataclass(slots=True)
class TagNode:
    """A pair of tags with everything inside of it, or a standalone tag.

    A pair opened in an earlier sentence starts at 0 and has no `before`; one closed in a later sentence ends at the end and has
    no `after`.
    """

    start: int
    end: int
    before: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()
    inner: list["TagNode"] = field(default_factory=list)
    opens: bool = True  # here
    closes: bool = True
    alone: bool = False
    leans: int = 0

    def flat(self) -> tuple[Piece, ...]:
        return (*self.before, *(piece for node in self.inner for piece in node.flat()), *self.after)


def build_tag_tree(points: Sequence[TagPoint], text: str) -> list[TagNode] | None:
    """Return the outermost nodes; None if pairs cross."""
    closed = {point.pair for point in points if point.role is Role.CLOSE}
    opened = {point.pair for point in points if point.role is Role.OPEN}
    root: list[TagNode] = []
    stack: list[tuple[int, TagNode]] = []
    for point in points:
        level = stack[-1][1].inner if stack else root
        if point.role is Role.ALONE:
            level.append(TagNode(point.at, point.at, point.pieces, alone=True, leans=point.leans))
        elif point.role is Role.OPEN:
            node = TagNode(point.at, len(text), point.pieces, closes=point.pair in closed, leans=point.leans)
            level.append(node)
            stack.append((point.pair, node))
        elif point.pair not in opened:
            if stack:
                return None
            root = [TagNode(0, point.at, (), point.pieces, root, opens=False)]
        elif not stack or stack[-1][0] != point.pair:
            return None
        else:
            node = stack.pop()[1]
            node.end, node.after = point.at, point.pieces
    if any(node.closes for _, node in stack):
        return None
    return list(_without_empty(root, text))


def _without_empty(nodes: Iterable[TagNode], text: str) -> Iterable[TagNode]:
    """Turn pairs around nothing into standalone tags."""
    for node in nodes:
        if not node.alone and node.opens and node.closes and not text[node.start : node.end].strip():
            leans = node.leans if all(part.leans for part in node.inner) else 0
            yield TagNode(node.start, node.start, node.flat(), alone=True, leans=leans)
        else:
            node.inner = list(_without_empty(node.inner, text))
            yield node


Range = tuple[int, int]  # words [first, last)

_DECAY = 0.6  # weight of each further word neighbours a gap
_LEAST = 0.15  # minimum attention on a pair for a word to count when no word has most of its attention there
_STOPS = frozenset(".!?…。")
_NEAR = 12  # words beside a gap that count
_RANKED = 40  # pairs of one level that are ranked; more are placed in source order, because ranking is quadratic
_EPSILON = 1e-9  # tolerance for rounding
_SIGN = 0.25  # weight of punctuation, whose attention is unreliable


@dataclass(frozen=True, slots=True)
class PlacedTag:
    """A node in the translation: around words [first, last), or before word `first` if standalone."""

    node: TagNode
    first: int
    last: int
    inner: tuple["PlacedTag", ...] = ()
    sure: bool = True  # placed by alignment


class TagPlacer:
    """Place the nodes of one sentence."""

    def __init__(self, source: str, target: str, links: WordLinks) -> None:
        self._links = links
        self._source = source
        self._signs = [not target[start].isalnum() for start, _ in links.target]
        self._worth = [_SIGN if sign else 1.0 for sign in self._signs]
        self._totals = [sum(row) for row in links.weights]
        self._starts = [start for start, _ in links.source]
        self._ends = [end for _, end in links.source]
        self._stops = target.rstrip()[-1:] in _STOPS

    def place(self, nodes: Sequence[TagNode]) -> tuple[PlacedTag, ...]:
        return tuple(self._place(nodes, (0, len(self._links.target))))

    def _place(self, nodes: Sequence[TagNode], within: Range) -> list[PlacedTag]:
        placed: list[PlacedTag] = []
        low, high = within
        for node in nodes:
            if node.alone or (node.opens and node.closes):
                continue
            one = self._partial(node, (low, high))
            placed.append(one)
            low, high = (one.last, high) if not node.opens else (low, one.first)
        pairs = [node for node in nodes if not node.alone and node.opens and node.closes]
        placed += self._pairs(pairs, (low, high))
        placed.sort(key=lambda one: (one.first, one.last))
        taken = {gap for one in placed for gap in range(one.first + 1, one.last)}
        allowed, neighbours = [gap for gap in range(low, high + 1) if gap not in taken], _neighbours(nodes, placed)
        alone = [self._alone(node, allowed, (low, high), neighbours) for node in nodes if node.alone]
        return _ordered(nodes, [*placed, *alone])

    def _partial(self, node: TagNode, within: Range) -> PlacedTag:
        """Place a pair that continues in another sentence: around all words up to its end, or from its start."""
        low, high = within
        values = self._gains(node)[low:high]
        sure = bool(self._source[node.start : node.end].strip())
        if node.opens:
            count = _best_prefix(values[::-1])
            words = (high - count, high)
        else:
            count = _best_prefix(values)
            words = (low, low + count)
        if sure and not count:
            words, sure = self._by_proportion(node, within), False
        return PlacedTag(node, *words, tuple(self._place(node.inner, words)), sure=sure or not count)

    def _pairs(self, nodes: Sequence[TagNode], within: Range) -> Iterator[PlacedTag]:
        """Place complete pairs, the clearest first; words that are taken are not available to others."""
        waiting = [(node, self._gains(node)) for node in nodes]
        free = [within]
        while waiting:
            candidates = waiting if len(waiting) <= _RANKED else waiting[:1]
            ranked = [_best(gains, free) for _, gains in candidates]
            chosen = max(range(len(ranked)), key=lambda index: (ranked[index][0], -index))
            node, _ = waiting.pop(chosen)
            gain, words = ranked[chosen]
            if gain <= 0 and (word := self._likeliest(node, free)) is not None:
                gain, words = _LEAST, (word, word + 1)
            if gain > 0:
                words = self._trimmed(node, words, free)
            else:
                words = self._by_proportion(node, _widest(free, self._middle(node, within)))
            yield PlacedTag(node, *words, tuple(self._place(node.inner, words)), sure=gain > 0)
            free = [rest for one in free for rest in _without(one, words)] or [(words[1], words[1])]

    def _gains(self, node: TagNode) -> list[float]:
        """Return for each word the evidence that it belongs inside the node; negative if against."""
        return self._against_half(self._masses(node))

    def _against_half(self, masses: Sequence[float]) -> list[float]:
        return [(mass - total / 2) * worth for mass, total, worth in zip(masses, self._totals, self._worth, strict=True)]

    def _masses(self, node: TagNode) -> list[float]:
        """Return for each word the share of attention on the node."""
        first = bisect_left(self._ends, node.start + 1)
        last = bisect_left(self._starts, node.end)
        words = self._links.source[first:last]
        shares = [(min(end, node.end) - max(start, node.start)) / (end - start) for start, end in words]
        return [sum(map(mul, row[first:last], shares)) for row in self._links.weights]

    def _likeliest(self, node: TagNode, free: Sequence[Range]) -> int | None:
        """Return the word with the most attention on the node, though less than half."""
        masses = self._masses(node)
        every = (word for low, high in free for word in range(low, high))
        words = [word for word in every if masses[word] >= _LEAST and not self._signs[word]]
        return max(words, key=masses.__getitem__, default=None)

    def _trimmed(self, node: TagNode, words: Range, free: Sequence[Range]) -> Range:
        """Include punctuation at the edges only if the source does."""
        first, last = words
        signs = self._signs
        if not self._edge_is_sign(node, last=True):
            while last - first > 1 and signs[last - 1]:
                last -= 1
        elif any(low <= last < high for low, high in free) and signs[last] and not signs[last - 1]:
            last += 1
        if not self._edge_is_sign(node, last=False):
            while last - first > 1 and signs[first]:
                first += 1
        elif any(low < first <= high for low, high in free) and signs[first - 1] and not signs[first]:
            first -= 1
        return first, last

    def _edge_is_sign(self, node: TagNode, *, last: bool) -> bool:
        inner = self._source[node.start : node.end].strip()
        return bool(inner) and not inner[-1 if last else 0].isalnum()

    def _by_proportion(self, node: TagNode, within: Range) -> Range:
        low, high = within
        length = max(1, len(self._source))
        count = len(self._links.target)
        first = min(max(low, round(node.start / length * count)), high)
        last = min(max(first, round(node.end / length * count)), high)
        if last == first and first < high:
            last = first + 1
        elif last == first and first > low:
            first -= 1
        return (low if not node.opens else first), (high if not node.closes else last)

    def _middle(self, node: TagNode, within: Range) -> int:
        place = (node.start + node.end) / 2 / max(1, len(self._source)) * len(self._links.target)
        return min(max(within[0], round(place)), within[1])

    def _alone(self, node: TagNode, allowed: Sequence[int], within: Range, neighbours: Mapping[int, PlacedTag]) -> PlacedTag:
        """Place a standalone tag between two words, outside of other pairs of its level."""
        if (pair := neighbours.get(id(node))) is not None:
            gap = pair.last if pair.node.end == node.start else pair.first
            return PlacedTag(node, gap, gap)
        before = bisect_right(self._ends, node.start)
        leaning = before - 1 if node.leans < 0 else before
        if node.leans and 0 <= leaning < len(self._ends):
            gain, words = _best(self._against_half([row[leaning] for row in self._links.weights]), [within])
            gap = words[1] if node.leans < 0 else words[0]
            if gain > 0 and gap in allowed:
                return PlacedTag(node, gap, gap)
        allowed = self._before_end(node, allowed)
        scores = self._gap_scores(before, within)
        middle = self._middle(node, within)
        gap = max(allowed, key=lambda one: (scores[one - within[0]], -abs(one - middle)))
        return PlacedTag(node, gap, gap, sure=self._links.known and scores[gap - within[0]] > 0)

    def _before_end(self, node: TagNode, allowed: Sequence[int]) -> Sequence[int]:
        """Keep tags from inside of a sentence before its full stop."""
        if not self._stops or self._source[: node.start].rstrip()[-1:] in _STOPS:
            return allowed
        return [gap for gap in allowed if gap < len(self._signs)] or allowed

    def _gap_scores(self, before: int, within: Range) -> list[float]:
        """Score each gap: words before it should come from before the tag, words after it from after the tag."""
        first, last = max(0, before - _NEAR), min(len(self._ends), before + _NEAR)
        sides = [
            _DECAY ** (before - 1 - word) if word < before else -(_DECAY ** (word - before)) for word in range(first, last)
        ]
        pulls = [sum(map(mul, self._links.weights[word][first:last], sides)) * self._worth[word] for word in range(*within)]
        score = -sum(pulls)
        scores = [score]
        for pull in pulls:
            score += 2 * pull
            scores.append(score)
        return scores


def _best(gains: Sequence[float], free: Sequence[Range]) -> tuple[float, Range]:
    """Return the run of free words with the largest total gain (Kadane's algorithm), and that gain."""
    best, words = 0.0, (free[0][0], free[0][0])
    for low, high in free:
        total, first = 0.0, low
        for word in range(low, high):
            if total <= 0:
                total, first = 0.0, word
            total += gains[word]
            if total > best + _EPSILON:
                best, words = total, (first, word + 1)
    return best, words


def _neighbours(nodes: Sequence[TagNode], placed: Sequence[PlacedTag]) -> dict[int, PlacedTag]:
    """Find the placed pair next to each standalone tag that touches one."""
    place_of = {id(one.node): one for one in placed}
    neighbours: dict[int, PlacedTag] = {}
    for left, right in pairwise(nodes):
        pair = place_of.get(id(left)) or neighbours.get(id(left))
        if pair is not None and pair.node.closes and right.alone and right.leans < 0 and left.end == right.start:
            neighbours[id(right)] = pair
    for left, right in pairwise(nodes):
        if left.alone and left.leans > 0 and left.start == right.start and id(right) in place_of and right.opens:
            neighbours[id(left)] = place_of[id(right)]
    return neighbours


def _best_prefix(values: Sequence[float]) -> int:
    best, count, total = 0.0, 0, 0.0
    for index, value in enumerate(values):
        total += value
        if total > best:
            best, count = total, index + 1
    return count


def _widest(free: Sequence[Range], middle: int) -> Range:
    """Return the free run at the middle, or the nearest one."""
    filled = [one for one in free if one[0] < one[1]] or list(free)
    return min(filled, key=lambda one: max(one[0] - middle, middle - one[1], 0))


def _without(words: Range, taken: Range) -> Iterator[Range]:
    for low, high in ((words[0], min(words[1], taken[0])), (max(words[0], taken[1]), words[1])):
        if low < high:
            yield low, high


def _ordered(nodes: Sequence[TagNode], placed: Sequence[PlacedTag]) -> list[PlacedTag]:
    """Sort by place; at equal places in source order, but standalone tags never inside a pair that starts there."""
    rank = {id(node): index for index, node in enumerate(nodes)}
    return sorted(placed, key=lambda one: (one.first, one.last > one.first, rank[id(one.node)]))
