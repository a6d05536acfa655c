"""Line wrapping. Codes are never broken; a line end inside of a code stays a line end."""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

from triptych_documents.unit import Code, Piece

NARROWEST = 50  # narrower paragraphs are addresses, verses or lists, whose line ends are intended
_MOST = 0.8  # share of full lines in a wrapped paragraph; others may have been edited
SENTENCE_END = re.compile(r"[.!?:;…。！？؟।][\"'”’»)\]]*$")
MARKER = r"[-*+•‣◦▪·–—]|\(?[0-9]{1,3}[.)]|\(?[A-Za-z]\)"  # of an item of a list
_MARKER = re.compile(MARKER)
_APART = re.compile(r" (?![^{}\n]{0,300}\})")  # spaces outside of {{ name }}


def words_of(pieces: Sequence[Piece], write: Callable[[str], str]) -> list[str]:
    """Split pieces into unbreakable words, with adjacent codes and placeholders whole; `write` escapes text."""
    words = [""]
    for piece in pieces:
        if isinstance(piece, Code):
            words[-1] += piece.raw
            continue
        text = write(piece)
        first, *others = _APART.split(text) if "{" in text else text.split(" ")
        words[-1] += first
        words += others
    return [word for word in words if word]


def wrapped(
    words: Sequence[str],
    width: int,
    used: int = 0,
    may_begin: Callable[[str], bool] = bool,
    measure: Callable[[str], int] = len,
) -> list[str]:
    """Fill lines with words.

    Args:
        words: in order; line feeds inside of them, from codes, end lines.
        width: characters of a line; a longer word gets its own line.
        used: width already used on the first line.
        may_begin: whether a line other than the first may start with a word.
        measure: width of a text.
    """
    lines = [""]
    filled = 0  # width of the last line: measured word by word, as lines may be long
    for word in words:
        head, *others = word.split("\n")
        size = measure(head)
        room = width - used if len(lines) == 1 else width
        if not lines[-1]:
            lines[-1], filled = head, size
        elif filled + 1 + size <= room or not may_begin(head):
            lines[-1] += " " + head
            filled += 1 + size
        else:
            lines.append(head)
            filled = size
        if others:
            lines += others
            filled = measure(others[-1])
    return lines


def balanced(
    words: Sequence[str], width: int, may_begin: Callable[[str], bool] = bool, measure: Callable[[str], int] = len
) -> list[str]:
    """Return one line, or two of nearly equal length; more only if two are too short."""
    lines = wrapped(words, width, may_begin=may_begin, measure=measure)
    if len(lines) != 2:
        return lines
    cuts = [cut for cut in range(1, len(words)) if may_begin(words[cut])]
    ends = list(accumulate((measure(word) + 1 for word in words), initial=0))  # length of the first n words, each with a space
    longest = {cut: max(ends[cut], ends[-1] - ends[cut]) - 1 for cut in cuts}
    best = min(cuts, key=lambda cut: longest[cut], default=0)
    return [" ".join(words[:best]), " ".join(words[best:])] if best and longest[best] <= width else lines


def looks_wrapped(bodies: Sequence[str], used: int, rest: int) -> bool:
    """Return whether the first word of each next line would not have fitted, and not all lines end a sentence.

    Args:
        bodies: lines without what is before and after their words.
        used: width of what is before the first line.
        rest: width of what is before each other line.
    """
    if len(bodies) == 1:
        return True
    widths = [used + len(bodies[0]), *(rest + len(body) for body in bodies[1:])]
    width = max(widths)
    full = [size + 1 + len(after.split(" ", 1)[0]) > width for size, after in zip(widths, bodies[1:], strict=False)]
    inside = any(SENTENCE_END.search(body) is None for body in bodies[:-1])
    return width >= NARROWEST and sum(full) >= _MOST * len(full) and inside


def may_begin(word: str) -> bool:
    """Return whether a wrapped line may start with this word: the mark of a list item would make it another paragraph."""
    return not _MARKER.fullmatch(word) and word[0] != ">" and any(map(str.isalnum, word))
