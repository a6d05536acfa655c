"""From what a format's scanner finds in a text to the pieces of a unit: pairs are found, what is no text is cut off.

Formats with inline markup scan a stretch of text into parts: texts and tags, each with its place. `coded` makes codes of the
tags, `core` says which parts are the unit.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from triptych_documents.unit import Code, Piece, Role, joined

SPACE = " \t\n\r\f"  # white space that is not said to be kept, as no-break spaces are
_SPACES = re.compile(f"[{SPACE}]+")


@dataclass(frozen=True, slots=True)
class Tag:
    """Markup as the scanner finds it; what opens and what closes has a name by which they find each other."""

    raw: str
    role: Role
    name: str = ""
    shown: str = ""
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A text, as readers see it, or a tag, and where it stands."""

    content: str | Tag
    start: int
    end: int


def coded(parts: Sequence[Part]) -> list[Piece]:
    """A piece for each part. What opens and never closes, or closes and never opened, or crosses a pair, stands alone."""
    partner = _partners(parts)
    numbers: dict[int, int] = {}  # of pairs, by the place of what opens or stands alone: equal codes are numbered alike
    pieces: list[Piece] = []
    for place, part in enumerate(parts):
        if isinstance(part.content, str):
            pieces.append(part.content)
            continue
        tag, other = part.content, partner.get(place)
        role = Role.ALONE if other is None else tag.role
        number = numbers[other] if role is Role.CLOSE and other is not None else numbers.setdefault(place, len(numbers))
        pieces.append(Code(tag.raw, role, number, tag.shown, tag.fixed))
    return pieces


def _partners(parts: Sequence[Part]) -> dict[int, int]:
    opened: list[tuple[str, int]] = []
    partner: dict[int, int] = {}
    for place, part in enumerate(parts):
        if not isinstance(part.content, Tag) or part.content.role is Role.ALONE:
            continue
        name = part.content.name
        if part.content.role is Role.OPEN:
            opened.append((name, place))
        elif any(name == other for other, _ in opened[-16:]):  # what is opened further out has long been forgotten
            while opened[-1][0] != name:
                opened.pop()
            start = opened.pop()[1]
            partner[start], partner[place] = place, start
    return partner


def core(parts: Sequence[Part]) -> Sequence[Part]:
    """Without white space, tags that stand alone and show nothing, and fixed ones at both ends; empty where no text is left.

    Pairs that only these ends would break are not broken: what opens or closes is kept.
    """
    pieces = coded(parts)
    first, after = 0, len(parts)
    while first < after and _is_edge(pieces[first]):
        first += 1
    while after > first and _is_edge(pieces[after - 1]):
        after -= 1
    kept = list(parts[first:after])
    if not any(isinstance(part.content, str) and part.content.strip(SPACE) for part in kept):
        return ()
    return _stripped(kept)


def _is_edge(piece: Piece) -> bool:
    if isinstance(piece, str):
        return not piece.strip(SPACE)
    return piece.role is Role.ALONE and (piece.fixed or not piece.shown.strip(SPACE))


def _stripped(parts: list[Part]) -> list[Part]:
    first = parts[0]
    if _is_as_written(first):
        text = str(first.content).lstrip(SPACE)
        parts[0] = Part(text, first.end - len(text), first.end)
    last = parts[-1]
    if _is_as_written(last):
        text = str(last.content).rstrip(SPACE)
        parts[-1] = Part(text, last.start, last.start + len(text))
    return parts


def _is_as_written(part: Part) -> bool:
    """An entity has another length than what it means; white space that is one is meant and stays."""
    return isinstance(part.content, str) and len(part.content) == part.end - part.start


def pieces_of(parts: Sequence[Part]) -> tuple[Piece, ...]:
    """Of a unit whose white space is soft: any run of it is one space."""
    return tuple(spaced(piece) if isinstance(piece, str) else piece for piece in joined(coded(parts)))


def spaced(text: str) -> str:
    """Any run of soft white space as one space."""
    if text.isprintable() and "  " not in text:  # as most are; quick to see
        return text
    return _SPACES.sub(" ", text)


def soft(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """What is written of pieces whose white space is soft: runs of it are one space, and none at the ends."""
    texts = list(joined([spaced(piece) if isinstance(piece, str) else piece for piece in pieces]))
    if texts and isinstance(texts[0], str):
        texts[0] = texts[0].lstrip(SPACE)
    if texts and isinstance(texts[-1], str):
        texts[-1] = texts[-1].rstrip(SPACE)
    return joined(texts)
