"""JSON (RFC 8259): values that are strings. Keys, numbers, white space and the order of members stay.

The standard library's scanner reads it and says where the strings are.
"""

import json
import json.scanner
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.spans import Span
from triptych_documents.formats.shared.text_document import Bound, TextDocument
from triptych_documents.formats.structured.keys import Choice, Trail
from triptych_documents.unit import Piece, Unit

_ESCAPED = re.compile(r"\\u00[89a-fA-F]|\\u(?!00)")


@dataclass(frozen=True, slots=True)
class _String:
    text: str
    span: Span  # with its quotes


@dataclass(frozen=True, slots=True)
class _Members:
    pairs: Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class _Place:
    span: Span
    ascii_alone: bool
    slashes: bool  # are written \/

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        text = "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)
        written = json.dumps(text, ensure_ascii=self.ascii_alone)
        written = written.replace("/", "\\/") if self.slashes else written
        return encoding.escaped(written, lambda character: json.dumps(character)[1:-1])


class _Decoder(json.JSONDecoder):
    """Values with their places; members as they stand, repeated ones too."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_Members, strict=False)
        self.parse_string = _string
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _string(text: str, start: int, strict: bool) -> tuple[_String, int]:
    value, end = scanstring(text, start, strict)
    return _String(value, (start - 1, end)), end


class Json:
    """Reads .json."""

    name = "json"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        choice, bound = Choice(options), Bound(options)
        bound.check_marks(data, b",", b":")
        text, encoding = decode(data, options.encoding)
        ascii_alone = text.isascii() and _ESCAPED.search(text) is not None
        units: list[Unit] = []
        places: list[_Place] = []
        for trail, found in _strings(_parsed(text), choice.root):
            if trail.takes(found.text):
                units.append(Unit((found.text,), trail.shown(), keeps_space=True))
                bound.check(units)
                places.append(_Place(found.span, ascii_alone, "\\/" in text[slice(*found.span)]))
        return TextDocument(text, encoding, units, places)


FORMAT = Json()


def _parsed(text: str) -> Any:
    try:
        return _Decoder().decode(text)
    except json.JSONDecodeError as error:
        raise DamagedDocumentError(f"it is not JSON: {error.msg}", f"line {error.lineno}") from None
    except RecursionError:
        raise DamagedDocumentError("it is nested too deep to be read") from None


def _strings(value: Any, root: Trail) -> Iterator[tuple[Trail, _String]]:
    """In the document's order, without recursion."""
    waiting: list[Iterator[tuple[Trail, Any]]] = [iter([(root, value)])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif isinstance(found[1], _String):
            yield found
        elif isinstance(found[1], _Members | list):
            waiting.append(_within(*found))


def _within(trail: Trail, value: Any) -> Iterator[tuple[Trail, Any]]:
    """What has strings, or is one."""
    names = value.pairs if isinstance(value, _Members) else enumerate(value)
    return ((trail.within(str(name)), member) for name, member in names if isinstance(member, _String | _Members | list))
