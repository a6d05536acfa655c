"""What a document asks to have translated: units of text with the markup inside them.

The model is XLIFF's (OASIS, XLIFF 2.1): a unit is text and inline codes. A code is never translated; opening and closing codes
are pairs that stay around the words that they stood around.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """How a code stands in its unit."""

    OPEN = "open"
    CLOSE = "close"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Code:
    """Markup, or a placeholder of the format, as one thing.

    Args:
        raw: as the document writes it; put back to the letter.
        role: opens, closes or stands alone.
        pair: of the unit's codes, equal for an opening one and the one that closes it, and for nothing else.
        shown: what a reader sees in its place: a line break shows white space, a code sample shows its text, bold type shows
            nothing. The sentence around it is split and translated by it.
        fixed: must not move out of its place between two sentences or words, such as a hard line break.
    """

    raw: str
    role: Role
    pair: int
    shown: str = ""
    fixed: bool = False


Piece = str | Code


@dataclass(frozen=True, slots=True)
class Unit:
    """A paragraph, a cell, a message: what is translated by itself.

    Args:
        pieces: text as readers see it (entities and escapes resolved) and codes, in order.
        where: for people: "line 12", "cue 7", "messages.title".
        keeps_space: white space is part of the text; otherwise any run of it is one space, and may be another run in the
            translation.
        context: tells equal texts apart for a translation memory: a message's context or key; mostly empty.
    """

    pieces: tuple[Piece, ...]
    where: str
    keeps_space: bool = False
    context: str = ""

    @property
    def plain(self) -> str | None:
        """Its text; None where it has codes."""
        if len(self.pieces) == 1 and isinstance(text := self.pieces[0], str):
            return text
        return None if self.codes else self.text

    @property
    def text(self) -> str:
        """Without its codes."""
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def codes(self) -> tuple[Code, ...]:
        """In order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Code))


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same without empty texts and with neighbouring texts as one: equal contents have equal pieces."""
    if len(pieces) == 1 and pieces[0]:
        return tuple(pieces)
    return tuple(_join(pieces))


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
