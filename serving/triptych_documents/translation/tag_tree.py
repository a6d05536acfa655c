"""Marks of a sentence as a tree: what is inside of which pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from triptych_documents.unit import Piece, Role


@dataclass(frozen=True, slots=True)
class TagPoint:
    """A mark, or a thing that was left out, at its place in a wording."""

    at: int
    role: Role
    pair: int
    pieces: tuple[Piece, ...]
    leans: int = 0  # alone: -1 stands at the word before, 1 at the word after, 0 like a word between others


@dataclass(slots=True)
class TagNode:
    """A pair, or what stands alone.

    A pair whose opening is in an earlier sentence begins at 0 and has no `before`; one that is closed in a later sentence ends
    at the end and has no `after`.
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
        """All that is in it, in order."""
        return (*self.before, *(piece for node in self.inner for piece in node.flat()), *self.after)


def build_tag_tree(points: Sequence[TagPoint], text: str) -> list[TagNode] | None:
    """The outermost nodes; None where pairs cross each other.

    Args:
        points: in order.
        text: in which they stand.
    """
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
    """Pairs around nothing stand alone."""
    for node in nodes:
        if not node.alone and node.opens and node.closes and not text[node.start : node.end].strip():
            leans = node.leans if all(part.leans for part in node.inner) else 0
            yield TagNode(node.start, node.start, node.flat(), alone=True, leans=leans)
        else:
            node.inner = list(_without_empty(node.inner, text))
            yield node
