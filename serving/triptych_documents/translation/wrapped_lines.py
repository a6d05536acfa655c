"""Paragraphs in texts whose line ends are significant: lines wrapped at a width are translated together and wrapped again."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from triptych_documents.formats.shared.inline_codes import split_ends
from triptych_documents.formats.shared.wrapping import NARROWEST, SENTENCE_END, looks_wrapped, may_begin, words_of, wrapped
from triptych_documents.unit import Code, Piece, joined, raw_text

_GAP = re.compile(r"\S(?:\t| {3})")  # between columns
_HELD = re.compile(r"\{[^{}]*\}|[%$][\w({]\S*|(?<!\w)\w+://\S+|<[^<>]*>")  # placeholders and addresses
_PROSE = re.compile(r"(?<!\w)[^\W\d_]{2,}+\W+[^\W\d_]{2}")
_BEGINNING = re.compile(r"[\w\"'“‘«(\[`{<%]")  # of a line of a paragraph; others are code or items
_CODE_PLANE = 0xF0000  # private characters, each of which stands for a code
_CODES = re.compile("([\U000f0000-\U000fffff])")
# Also a plural of ICU's, whose forms have placeholders.
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,100}\}){0,300}+\}){0,300}+\}"
_WHOLE = re.compile(rf"`[^`]{{1,300}}`|<[^<>]{{1,500}}>|{_BRACES}|\]\([^()]{{1,500}}\)")  # is not broken
_INNER_SPACE = "\U00100000"  # stands for a space in it


@dataclass(frozen=True)
class _Line:
    pieces: tuple[Piece, ...]

    @cached_property
    def body(self) -> str:
        return raw_text(self.pieces).strip()

    @cached_property
    def indent(self) -> str:
        return split_ends(self.pieces)[0]


@dataclass(frozen=True)
class _Paragraph:
    """One line, or several that are wrapped."""

    lines: tuple[_Line, ...]

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The lines as one."""
        if len(self.lines) == 1:
            return self.lines[0].pieces
        ends = [split_ends(line.pieces) for line in self.lines]
        pieces: list[Piece] = [ends[0][0]]
        for _, inner, _ in ends:
            pieces += (*inner, " ")
        return joined((*pieces[:-1], ends[-1][2]))

    def written(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Wrap a translation of `pieces`."""
        if len(self.lines) == 1:
            return pieces
        if pieces == self.pieces:
            return _joined([line.pieces for line in self.lines])
        lead, inner, tail = split_ends(pieces)
        codes = [piece for piece in inner if isinstance(piece, Code)]
        numbers = iter(range(len(codes)))
        text = "".join(piece if isinstance(piece, str) else chr(_CODE_PLANE + next(numbers)) for piece in inner)
        width = max(len(line.indent) + len(line.body) for line in self.lines)
        first, rest = self.lines[0].indent, self.lines[1].indent

        def measure(word: str) -> int:
            return sum(len(codes[ord(sign) - _CODE_PLANE].raw) if _CODES.match(sign) else 1 for sign in word)

        text = _WHOLE.sub(lambda found: found[0].replace(" ", _INNER_SPACE), text)
        lines = wrapped(words_of((text,), str), width - len(rest), len(first) - len(rest), may_begin, measure)
        end = "\r\n" if split_ends(self.lines[0].pieces)[2].endswith("\r") else "\n"
        parts = _CODES.split((end + rest).join(lines).replace(_INNER_SPACE, " "))
        found: list[Piece] = [codes[ord(part) - _CODE_PLANE] if _CODES.match(part) else part for part in parts]
        return joined((lead, *found, tail))


class WrappedLines:
    """The paragraphs of a text.

    Args:
        pieces: of a unit whose white space is significant.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        is_plain = not any(isinstance(piece, str) and piece and max(piece) >= "\U000f0000" for piece in pieces)
        self._paragraphs = list(_paragraphs(_lines(pieces))) if is_plain else [_Paragraph((_Line(tuple(pieces)),))]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The text with each wrapped paragraph on a line."""
        return _joined([paragraph.pieces for paragraph in self._paragraphs])

    def written(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """Wrap the paragraphs of a translation of `pieces`."""
        lines = _lines(pieces)
        if len(lines) != len(self._paragraphs):
            return tuple(pieces)
        return _joined([one.written(line.pieces) for one, line in zip(self._paragraphs, lines, strict=True)])


def _lines(pieces: Sequence[Piece]) -> list[_Line]:
    lines: list[list[Piece]] = [[]]
    for piece in pieces:
        first, *others = piece.split("\n") if isinstance(piece, str) else (piece,)
        lines[-1].append(first)
        lines += [[other] for other in others]
    return [_Line(joined(line)) for line in lines]


def _joined(lines: Sequence[Sequence[Piece]]) -> tuple[Piece, ...]:
    return joined([piece for line in lines for piece in ("\n", *line)][1:])


def _paragraphs(lines: Sequence[_Line]) -> Iterator[_Paragraph]:
    block: list[_Line] = []
    for line in lines:
        if block and not _continues(block, line):
            yield from _as_paragraphs(block)
            block = []
        block.append(line)
    yield from _as_paragraphs(block)


def _continues(block: Sequence[_Line], line: _Line) -> bool:
    body, last = line.body, block[-1].body
    if not last or not _BEGINNING.match(body) or not may_begin(body.split()[0]) or _GAP.search(last) or _GAP.search(body):
        return False
    return len(block) == 1 or line.indent == block[-1].indent


def _as_paragraphs(block: Sequence[_Line]) -> Iterator[_Paragraph]:
    bodies = [line.body for line in block]
    is_prose = len(block) > 1 and all(_PROSE.search(_HELD.sub("", body)) for body in bodies[:-1])
    has_words = any(map(str.isalpha, _HELD.sub("", bodies[-1])))
    if is_prose and has_words and (_runs_on(bodies) or looks_wrapped(bodies, len(block[0].indent), len(block[1].indent))):
        yield _Paragraph(tuple(block))
    else:
        yield from (_Paragraph((line,)) for line in block)


def _runs_on(bodies: Sequence[str]) -> bool:
    """Return whether sentences continue on each next line, as after an edit of a wrapped paragraph."""
    starts = all(body.lstrip("\"'“‘«([`")[:1].islower() for body in bodies[1:])
    return starts and max(map(len, bodies)) >= NARROWEST and not any(map(SENTENCE_END.search, bodies[:-1]))
