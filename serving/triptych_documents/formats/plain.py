"""Plain text: paragraphs, list items and lines.

A paragraph of lines wrapped at a width is one unit and is wrapped at that width again; other lines are separate units.
Indentation, bullets, numbers, quote marks, rules and column gaps belong to no unit.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from triptych_documents.encoding import Encoding
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.inline_codes import SPACE, soft, spaced
from triptych_documents.formats.shared.text_document import LineIndex, Span, TextDocument, collected, decoded_text
from triptych_documents.formats.shared.wrapping import MARKER, NARROWEST, looks_wrapped, may_begin, words_of, wrapped
from triptych_documents.unit import Piece, Unit

_MARKER = re.compile(rf"(?:{MARKER})(?=[ \t])")
_QUOTE = re.compile(r"[ \t\f]*(?:>[ \t]?)*[ \t]*")
_GAP = re.compile(r"[ ]*\t\s*| {3,}")
_TRIES = 100  # widths to try until a translation looks wrapped


@dataclass(frozen=True, slots=True)
class _Line:
    quote: str  # indentation and quote marks
    marker: str  # with the white space after it
    body: str
    start: int  # start of the body
    end: int  # end of the line, without its line end

    @property
    def width(self) -> int:
        return len(self.quote) + len(self.marker) + len(self.body)


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    width: int = 0  # 0: a single line
    used: int = 0
    rest: str = ""  # line end, and the prefix of each further line

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        words = words_of(soft(pieces), str)
        if not self.width:
            return " ".join(words)
        narrowest, prefix = max(NARROWEST // 2, self.width - _TRIES), len(self.rest.lstrip("\r\n"))
        for width in range(self.width, narrowest, -1):  # the result must be recognized as one paragraph again
            lines = wrapped(words, width - prefix, self.used - prefix, may_begin)
            if looks_wrapped(lines, self.used, prefix):
                return self.rest.join(lines)
        return " ".join(words)


def read(data: bytes, options: ReadOptions) -> TextDocument:
    """See FormatInfo.read."""
    text, encoding, bound = decoded_text(data, options)
    lines = LineIndex(text)
    units = (
        (Unit((spaced(body),), lines.where(place.span[0])), place)
        for block in _blocks(_lines(text, lines))
        for body, place in _places(text, block, options.wrapped)
    )
    return collected(text, encoding, units, bound)


def _lines(text: str, lines: LineIndex) -> Iterator[_Line]:
    for start, after in pairwise([*lines.starts, len(text)]):
        line = text[start:after].rstrip("\r\n")
        quote = _QUOTE.match(line)
        at = quote.end() if quote else 0
        marker = _MARKER.match(line, at)
        body_at = at if marker is None else marker.end() + len(line[marker.end() :]) - len(line[marker.end() :].lstrip(SPACE))
        body = line[body_at:].rstrip(SPACE)
        yield _Line(line[:at], line[at:body_at], body, start + body_at, start + body_at + len(body))


def _blocks(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Yield groups of lines that may form a paragraph."""
    block: list[_Line] = []
    for line in lines:
        if block and not _continues(block, line):
            yield block
            block = []
        if any(map(str.isalnum, line.body)):
            block.append(line)
    if block:
        yield block


def _has_gap(body: str) -> bool:
    return "\t" in body or "   " in body  # faster than the regular expression


def _continues(block: list[_Line], line: _Line) -> bool:
    if line.marker or _has_gap(line.body) or _has_gap(block[-1].body) or not any(map(str.isalnum, line.body)):
        return False
    if len(block) > 1:
        return block[-1].quote == line.quote
    return block[0].quote.count(">") == line.quote.count(">")


def _places(text: str, block: list[_Line], as_told: bool | None) -> Iterator[tuple[str, _Slot]]:
    used = len(block[0].quote) + len(block[0].marker)
    is_wrapped = as_told
    if len(block) > 1 and is_wrapped is None:
        is_wrapped = looks_wrapped([line.body for line in block], used, len(block[1].quote))
    if len(block) > 1 and is_wrapped:
        span = block[0].start, block[-1].end
        line_end = text[block[0].end : block[1].start - len(block[1].quote)].lstrip(" \t\f")
        width = max(line.width for line in block)
        yield " ".join(line.body for line in block), _Slot(span, width, used, line_end + block[1].quote)
        return
    for line in block:
        at = 0
        for gap in [*(_GAP.finditer(line.body) if _has_gap(line.body) else ()), None]:
            end = gap.start() if gap else len(line.body)
            if line.body[at:end].strip(SPACE):
                yield line.body[at:end], _Slot((line.start + at, line.start + end))
            at = gap.end() if gap else end
