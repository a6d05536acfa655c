"""JSON values with their spans, and writing strings with the escapes of a document.

The standard library's scanner parses.
"""

import json
import json.scanner
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import JSONObject, scanstring  # type: ignore[attr-defined]
from typing import Any

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.shared.text_document import Span

_COMMENT = re.compile(r'("(?>[^"\\]|\\.)*+")|//[^\r\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL)
_UNBROKEN = re.compile(r"[^\r\n]")
_ESCAPED = re.compile(r"\\u00[89a-fA-F]|\\u(?!00)")


@dataclass(frozen=True, slots=True)
class JsonString:
    text: str
    span: Span  # including quotes


@dataclass(frozen=True, slots=True)
class JsonObject:
    pairs: Sequence[tuple[str, Any]]  # in order, including repeated names
    span: Span  # including braces

    def get(self, name: str) -> Any:
        """Return the last member of this name; None if there is none."""
        return next((value for key, value in reversed(self.pairs) if key == name), None)


@dataclass(frozen=True, slots=True)
class JsonEscapes:
    """Which characters of strings are written as escapes."""

    ascii_alone: bool  # all that ASCII lacks
    slashes: bool  # slashes, as \\/

    def written(self, text: str, encoding: Encoding) -> str:
        """Write a string, with quotes."""
        written = json.dumps(text, ensure_ascii=self.ascii_alone)
        written = written.replace("/", "\\/") if self.slashes else written
        return encoding.escaped(written, lambda character: json.dumps(character)[1:-1])


def is_escaped(text: str) -> bool:
    """Return whether a document has escapes in place of all other characters than those of ASCII."""
    return text.isascii() and _ESCAPED.search(text) is not None


def parsed(text: str, line: int = 1, *, comments: bool = True) -> Any:
    """Parse a value that starts in a line; `comments` may be between its parts. Raises DamagedDocumentError: it is not JSON."""
    try:
        try:
            return _Decoder().decode(text)
        except json.JSONDecodeError:
            if not comments or ("//" not in text and "/*" not in text):
                raise
            return _Decoder().decode(_COMMENT.sub(lambda found: found[1] or _UNBROKEN.sub(" ", found[0]), text))
    except json.JSONDecodeError as error:
        raise DamagedDocumentError(f"not JSON: {error.msg}", f"line {line + error.lineno - 1}") from None
    except RecursionError:
        raise DamagedDocumentError("nested too deep") from None


class _Decoder(json.JSONDecoder):
    """Decodes to strings and objects with spans."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=tuple, parse_int=float, strict=False)  # int has a limit of digits
        self.parse_string = _string
        self.parse_object = _object
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _string(text: str, start: int, strict: bool) -> tuple[JsonString, int]:
    value, end = scanstring(text, start, strict)
    return JsonString(value, (start - 1, end)), end


def _object(place: tuple[str, int], *others: Any) -> tuple[JsonObject, int]:
    pairs, end = JSONObject(place, *others)
    return JsonObject(pairs, (place[1] - 1, end)), end
