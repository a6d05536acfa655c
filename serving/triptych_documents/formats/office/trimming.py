"""The ends of a paragraph that show nothing: white space, bookmarks, notes, links around everything."""

from collections.abc import Sequence

from triptych_documents.unit import Code, Piece, Role, joined


def trimmed(pieces: Sequence[Piece]) -> tuple[tuple[Piece, ...], tuple[Piece, ...], tuple[Piece, ...]]:
    """What stands in front, what is for translators, and what stands behind.

    Pieces that show nothing are cut off at both ends, and pairs that stand around all of the rest.
    """
    lead: list[Piece] = []
    trails: list[Sequence[Piece]] = []  # the last ones first
    first, last = 0, len(pieces)
    ends = _Ends(pieces)
    while first < last:
        if after := ends.blank_from(first, last):
            lead += pieces[first:after]
            first = after
        elif before := ends.blank_until(first, last):
            trails.append(pieces[before[0] : last])
            last = before[0]
        elif ends.whole(first, last):
            lead.append(pieces[first])
            trails.append((pieces[last - 1],))
            first, last = first + 1, last - 1
        else:
            break
    middle = list(pieces[first:last])
    front, back = _spaces(middle)
    trail = [piece for part in reversed(trails) for piece in part]
    return (*lead, *front), joined(middle), (*back, *trail)


class _Ends:
    """Which pieces at the ends of a paragraph show nothing."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._shown = [0]  # pieces before each that show something
        self._others: dict[int, int] = {}  # the other half of a pair
        opened: list[int] = []
        for index, piece in enumerate(pieces):
            self._shown.append(self._shown[-1] + bool((piece if isinstance(piece, str) else piece.shown).strip()))
            if isinstance(piece, Code) and piece.role is Role.OPEN:
                opened.append(index)
            elif isinstance(piece, Code) and piece.role is Role.CLOSE:
                self._others[index] = opened.pop()
                self._others[self._others[index]] = index

    def blank_from(self, first: int, last: int) -> int | None:
        """The end of a blank piece or pair that starts here; None where there is none."""
        end = self._others.get(first, first) + 1
        return end if first < end <= last and self._shown[end] == self._shown[first] else None

    def blank_until(self, first: int, last: int) -> tuple[int] | None:
        """The start of one that ends here."""
        start = self._others.get(last - 1, last - 1)
        return (start,) if first <= start < last and self._shown[start] == self._shown[last] else None

    def whole(self, first: int, last: int) -> bool:
        """A pair stands around all."""
        return self._others.get(first) == last - 1 > first


def _spaces(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """White space that begins the first text and ends the last one; taken out of them."""
    front: list[Piece] = []
    back: list[Piece] = []
    if pieces and isinstance(text := pieces[0], str):
        pieces[0] = text.lstrip()
        front = [text[: len(text) - len(text.lstrip())]]
    if pieces and isinstance(text := pieces[-1], str):
        pieces[-1] = text.rstrip()
        back = [text[len(text.rstrip()) :]]
    return [text for text in front if text], [text for text in back if text]
