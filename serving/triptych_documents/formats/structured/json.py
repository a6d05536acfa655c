"""JSON (RFC 8259): string values. Keys, numbers, white space, comments (as in VS Code's files) and the order of members stay.

The standard library's scanner parses and provides the spans of strings.
"""

import json
import json.scanner
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.text_document import LineIndex, Span, collected, decoded_text
from triptych_documents.formats.structured.keys import KeyPath, KeySelection
from triptych_documents.unit import Piece, Unit, raw_text
from triptych_text.languages import languages_differ

_COMMENT = re.compile(r'("(?>[^"\\]|\\.)*+")|//[^\r\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL)
_UNBROKEN = re.compile(r"[^\r\n]")
_ESCAPED = re.compile(r"\\u00[89a-fA-F]|\\u(?!00)")


@dataclass(frozen=True, slots=True)
class _String:
    text: str
    span: Span  # including quotes


@dataclass(frozen=True, slots=True)
class _Members:
    pairs: Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    ascii_alone: bool
    slashes: bool  # slashes are written as \/

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        written = json.dumps(raw_text(pieces), ensure_ascii=self.ascii_alone)
        written = written.replace("/", "\\/") if self.slashes else written
        return encoding.escaped(written, lambda character: json.dumps(character)[1:-1])


class _Decoder(json.JSONDecoder):
    """Decodes to strings with spans, and members in order including repeated names."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_Members, parse_int=float, strict=False)  # int has a limit of digits
        self.parse_string = _string
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _string(text: str, start: int, strict: bool) -> tuple[_String, int]:
    value, end = scanstring(text, start, strict)
    return _String(value, (start - 1, end)), end


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    choice = KeySelection(options)
    text, encoding, bound = decoded_text(data, options, b",", b":")
    whole = _parsed(text)
    document = collected(text, encoding, _units(text, whole, choice, _is_escaped(text)), bound)
    return with_messages(choice.checked(replace(document, language=_language(whole, options.target_language))), bound)


def read_lines(data: bytes, options: ReadOptions) -> Document:
    """Read JSON lines, each of which is a document. See FormatInfo.read."""
    choice = KeySelection(options)
    text, encoding, bound = decoded_text(data, options, b",", b":")
    starts, ascii_alone = LineIndex(text).starts, _is_escaped(text)
    units = (
        found
        for number, (start, end) in enumerate(pairwise([*starts, len(text)]), 1)
        if text[start:end].strip()
        for found in _units(text, _parsed(text[start:end], number), choice, ascii_alone, start, f"line {number} ")
    )
    return with_messages(choice.checked(collected(text, encoding, units, bound)), bound)


def _units(
    text: str, whole: Any, choice: KeySelection, ascii_alone: bool, start: int = 0, line: str = ""
) -> Iterator[tuple[Unit, _Slot]]:
    """Yield the texts of a value, which starts at an offset."""
    for trail, found in _strings(whole, choice.root):
        if trail.takes(found.text):
            span = start + found.span[0], start + found.span[1]
            slot = _Slot(span, ascii_alone, "\\/" in text[slice(*span)])
            yield Unit((found.text,), f"{line}{trail.shown()}".rstrip(), keeps_space=True), slot


def _is_escaped(text: str) -> bool:
    """Return whether a document has escapes in place of all other characters than those of ASCII."""
    return text.isascii() and _ESCAPED.search(text) is not None


def _language(whole: Any, wanted: str) -> tuple[Span, str] | None:
    """Return the place of the language that an Application Resource Bundle (ARB) declares, and its new value."""
    locales = [value for name, value in whole.pairs if name == "@@locale"] if isinstance(whole, _Members) else []
    if not wanted or len(locales) != 1 or not isinstance(locales[0], _String) or not languages_differ(locales[0].text, wanted):
        return None
    return locales[0].span, json.dumps(wanted.replace("-", "_"))


def _decoded(text: str) -> Any:
    """Parse a value; one that is no JSON, again without comments."""
    try:
        return _Decoder().decode(text)
    except json.JSONDecodeError:
        if "//" not in text and "/*" not in text:
            raise
        return _Decoder().decode(_COMMENT.sub(lambda found: found[1] or _UNBROKEN.sub(" ", found[0]), text))


def _parsed(text: str, line: int = 1) -> Any:
    """Parse a value that starts in a line."""
    try:
        return _decoded(text)
    except json.JSONDecodeError as error:
        raise DamagedDocumentError(f"not JSON: {error.msg}", f"line {line + error.lineno - 1}") from None
    except RecursionError:
        raise DamagedDocumentError("nested too deep") from None


def _strings(value: Any, root: KeyPath) -> Iterator[tuple[KeyPath, _String]]:
    """Yield strings with their paths in document order, without recursion."""
    waiting: list[Iterator[tuple[KeyPath, Any]]] = [iter([(root, value)])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif isinstance(found[1], _String):
            yield found
        elif isinstance(found[1], _Members | list):
            waiting.append(_within(*found))


def _within(trail: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    """Yield members that are or may contain strings."""
    names = value.pairs if isinstance(value, _Members) else enumerate(value)
    return ((trail.within(str(name)), member) for name, member in names if isinstance(member, _String | _Members | list))
