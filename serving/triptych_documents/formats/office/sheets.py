"""Texts of a worksheet outside of its cells: lists and messages of data validation, headers and footers of pages.

They are found in the text of the member, as a sheet may have a million cells.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape

from triptych_documents.formats.office.parts import Edit, UnitPlace, constant
from triptych_documents.formats.shared.text_document import Span, UnitLimit
from triptych_documents.formats.shared.xml import attribute_spans, written_attribute, written_text
from triptych_documents.unit import Code, Piece, Role, Unit, joined, raw_text

_VALIDATION = re.compile(r"<(?:\w+:)?dataValidation\s[^<>]*>(?:\s*<(?:\w+:)?formula1>([^<]*)<)?")
_LONGEST = {"errorTitle": 32, "promptTitle": 32, "error": 255, "prompt": 255}  # ECMA-376, 18.3.1.32; Excel repairs longer ones
_MOST = 255  # characters of a list, of a header
_PAGE = re.compile(r"<(?:\w+:)?(?:odd|even|first)(?:Header|Footer)\b[^<>]*(?<!/)>([^<]+)<")
_FIELD = re.compile(r'(&(?:"[^"]*"|K(?:[0-9A-F]{6}|\d\d[+-]\d{3})|\d{1,3}|[A-JL-Za-z]))')  # ECMA-376, 18.3.1.46
_SHOWN = {"&P": "2", "&N": "5", "&D": "2013", "&T": "10:30", "&A": "Tom", "&F": "Tom", "&Z": "Tom"}  # numbers, dates and names


@dataclass(frozen=True, slots=True)
class SheetSlot:
    """Place of a text."""

    start: int
    end: int
    source: str  # as written
    unit: Unit
    longest: int  # characters; a longer text would damage the workbook, so the source is kept
    kind: str  # "list", "page", or the quotation mark of an attribute

    def edit(self, pieces: Sequence[Piece]) -> Edit:
        return constant(self.start, self.end, self._written(pieces))

    def _written(self, pieces: Sequence[Piece]) -> str:
        """Return the new content; the source if Excel could not read it."""
        text = raw_text(pieces)
        if self.kind == "list":
            items = "".join(piece for piece in pieces if isinstance(piece, str))
            text = "" if "," in items else '"' + text.replace('"', '""') + '"'
        elif self.kind == "page":
            text = "".join(f"{piece.raw}\0" if isinstance(piece, Code) else piece.replace("&", "&&") for piece in pieces)
            text = re.sub(r"(&\d+)\0(?=\d)", r"\1 ", text).replace("\0", "")  # digits would belong to a font size
        if not text or len(text) > self.longest:
            return self.source
        return written_text(text) if self.kind in ("list", "page") else written_attribute(text, self.kind)


def sheet_slots(text: str, name: str, bound: UnitLimit) -> list[UnitPlace]:
    """Find the texts of a worksheet."""
    found: list[UnitPlace] = []
    for (start, end), pieces, longest, kind in _found(text):
        if any(isinstance(piece, str) and any(map(str.isalpha, piece)) for piece in pieces):
            bound.count()
            unit = Unit(joined(pieces), f"{name}, {'page' if kind == 'page' else 'data validation'} {len(found) + 1}")
            found.append(SheetSlot(start, end, text[start:end], unit, longest, kind))
    return found


def _found(text: str) -> Iterator[tuple[Span, Sequence[Piece], int, str]]:
    for match in _VALIDATION.finditer(text):
        for attribute, (start, end) in attribute_spans(match[0]).items():
            if attribute in _LONGEST:
                span = match.start() + start, match.start() + end
                yield span, [unescape(text[slice(*span)])], _LONGEST[attribute], text[span[1]]
        values = unescape(match[1] or "")
        if 'type="list"' in match[0] and len(values) > 2 and values[0] == values[-1] == '"':
            items = values[1:-1].replace('""', '"').split(",")
            pieces = [piece for at, item in enumerate(items) for piece in (Code(",", Role.ALONE, at, fixed=True), item)][1:]
            yield match.span(1), pieces, _MOST, "list"
    for match in _PAGE.finditer(text):
        parts = _FIELD.split(unescape(match[1]).replace("&&", "\0"))
        texts = [part.replace("\0", "&") for part in parts]
        codes = [_code(part, at) if at % 2 else part for at, part in enumerate(texts)]
        yield match.span(1), codes, _MOST, "page"


def _code(raw: str, number: int) -> Code:
    shown = _SHOWN.get(raw, "")
    return Code(raw, Role.ALONE, number, shown, fixed=not shown)
