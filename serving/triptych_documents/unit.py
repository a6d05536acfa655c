"""Units: the translatable pieces of a document, with their inline markup.

The model follows XLIFF (OASIS, XLIFF 2.1): a unit is text with inline codes. Codes are never translated; an opening and a
closing code form a pair that stays around the same words.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """Position of a code: opening, closing or standalone."""

    OPEN = "open"
    CLOSE = "close"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Code:
    """Inline markup, or a placeholder of the format, kept as it is."""

    raw: str  # source text of the code, written back unchanged
    role: Role  # opening, closing or standalone
    pair: int  # number shared by an opening code and its closing code, and by no other code of the unit
    shown: str = ""
    """What a reader sees: a line break shows white space, a code sample its text, bold type nothing. Sentences are split and
    translated with this text in place."""
    fixed: bool = False  # must keep its place between two sentences or words, such as a hard line break


Piece = str | Code


@dataclass(frozen=True, slots=True)
class Unit:
    """A text that is translated on its own: a paragraph, a cell, a message."""

    pieces: tuple[Piece, ...]  # text with entities and escapes resolved, and codes, in order
    where: str  # human-readable place: "line 12", "cue 7", "messages.title"
    keeps_space: bool = False  # white space is significant; otherwise any run of it counts as one space and may change

    @property
    def plain(self) -> str | None:
        """Text of the unit; None if it has codes."""
        if len(self.pieces) == 1 and isinstance(text := self.pieces[0], str):
            return text
        return None if self.codes else self.text

    @property
    def text(self) -> str:
        """Text without codes."""
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def codes(self) -> tuple[Code, ...]:
        """All codes, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Code))


def raw_text(pieces: Sequence[Piece]) -> str:
    """Return texts and the raw text of codes."""
    return "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Drop empty texts and merge adjacent ones, so that equal contents have equal pieces."""
    if len(pieces) == 1 and pieces[0]:
        return tuple(pieces)
    return tuple(_join(pieces))


def changed(units: Sequence[Unit], translations: Mapping[int, Sequence[Piece]]) -> dict[int, tuple[Piece, ...]]:
    """Return the translations, by index of the unit, that differ from their units; with joined pieces."""
    found = {index: joined(pieces) for index, pieces in translations.items()}
    return {index: pieces for index, pieces in found.items() if pieces != units[index].pieces}


def _join(pieces: Sequence[Piece]) -> Iterator[Piece]:
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
            text = ""
        yield piece
    if text:
        yield text


def partners(tags: Iterable[tuple[str, Role]]) -> dict[int, int]:
    """Map the place of each closing tag to that of its opening tag; tags that lack the other half, or cross a pair, have none.

    Args:
        tags: name and role of each tag.
    """
    opened: list[tuple[str, int]] = []
    counts = Counter[str]()  # of the names in `opened`
    found: dict[int, int] = {}
    for place, (name, role) in enumerate(tags):
        if role is Role.OPEN:
            opened.append((name, place))
            counts[name] += 1
        while role is Role.CLOSE and counts[name] and place not in found:
            last, start = opened.pop()
            counts[last] -= 1
            if last == name:
                found[place] = start
    return found


def nests(tags: Iterable[tuple[Role | None, Hashable]]) -> bool:
    """Return whether all pairs that open also close, and none crosses another. `tags`: role and pair of each tag."""
    opened: list[Hashable] = []
    for role, pair in tags:
        if role is Role.OPEN:
            opened.append(pair)
        elif role is Role.CLOSE and (not opened or opened.pop() != pair):
            return False
    return not opened
