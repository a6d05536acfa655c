"""Conversion of scanned text and markup into the pieces of a unit.

A format's scanner splits a stretch of text into texts and tags with their spans. `core` selects the parts that belong to the
unit; `coded` pairs the tags and makes codes of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from triptych_documents.unit import Code, Piece, Role, joined, partners

SPACE = " \t\n\r\f"  # soft white space; no-break spaces are kept
_SPACES = re.compile(f"[{SPACE}]+")


@dataclass(frozen=True, slots=True)
class ScannedTag:
    """Markup found by a scanner; opening and closing tags are paired by name."""

    raw: str
    role: Role
    name: str = ""
    shown: str = ""
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class ScannedPart:
    """A text as readers see it, or a tag, with its span."""

    content: str | ScannedTag
    start: int
    end: int


def coded(parts: Sequence[ScannedPart]) -> list[Piece]:
    """Return a piece for each part. Tags without partner, or that cross a pair, become standalone codes."""
    tags = [("", Role.ALONE) if isinstance(part.content, str) else (part.content.name, part.content.role) for part in parts]
    opening = partners(tags)
    paired = {*opening, *opening.values()}
    numbers: dict[int, int] = {}  # pair numbers by position of the opening or standalone tag: equal codes get equal numbers
    pieces: list[Piece] = []
    for place, part in enumerate(parts):
        tag = part.content
        if isinstance(tag, str):
            pieces.append(tag)
            continue
        number = numbers.setdefault(opening.get(place, place), len(numbers))
        pieces.append(Code(tag.raw, tag.role if place in paired else Role.ALONE, number, tag.shown, tag.fixed))
    return pieces


def core(parts: Sequence[ScannedPart]) -> Sequence[ScannedPart]:
    """Strip white space, invisible standalone tags and fixed tags at both ends; empty if no text is left.

    Pairs are kept whole: opening and closing tags are never stripped.
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


def _stripped(parts: list[ScannedPart]) -> list[ScannedPart]:
    first = parts[0]
    if _is_as_written(first):
        text = str(first.content).lstrip(SPACE)
        parts[0] = ScannedPart(text, first.end - len(text), first.end)
    last = parts[-1]
    if _is_as_written(last):
        text = str(last.content).rstrip(SPACE)
        parts[-1] = ScannedPart(text, last.start, last.start + len(text))
    return parts


def _is_as_written(part: ScannedPart) -> bool:
    """Return whether the text is written literally. White space written as an entity is intended and stays."""
    return isinstance(part.content, str) and len(part.content) == part.end - part.start


def pieces_of(parts: Sequence[ScannedPart]) -> tuple[Piece, ...]:
    """Return the pieces of a unit with soft white space: any run of it is one space."""
    return tuple(spaced(piece) if isinstance(piece, str) else piece for piece in joined(coded(parts)))


def spaced(text: str) -> str:
    """Collapse runs of soft white space into one space."""
    if text.isprintable() and "  " not in text:  # the common case, quick to check
        return text
    return _SPACES.sub(" ", text)


def soft(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Prepare pieces with soft white space for writing: collapse runs, and strip both ends."""
    return split_ends(joined([spaced(piece) if isinstance(piece, str) else piece for piece in pieces]))[1]


def split_ends(pieces: Sequence[Piece], space: str | None = SPACE) -> tuple[str, tuple[Piece, ...], str]:
    """Return the white space before the first text, the other pieces, and the white space after the last text."""
    found, lead, tail = list(pieces), "", ""
    if found and isinstance(text := found[0], str):
        found[0] = stripped = text.lstrip(space)
        lead = text[: len(text) - len(stripped)]
    if found and isinstance(text := found[-1], str):
        found[-1] = stripped = text.rstrip(space)
        tail = text[len(stripped) :]
    return lead, joined(found), tail
