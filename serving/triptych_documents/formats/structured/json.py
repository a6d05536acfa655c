"""JSON (RFC 8259): string values.

Keys, numbers, white space, comments (as in VS Code's files) and the order of members stay.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from triptych_documents.encoding import Encoding
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.text_document import LineIndex, Span, collected, decoded_text
from triptych_documents.formats.structured.json_values import JsonEscapes, JsonObject, JsonString, is_escaped, parsed
from triptych_documents.formats.structured.keys import KeyPath, KeySelection
from triptych_documents.unit import Piece, Unit, raw_text
from triptych_text.languages import languages_differ


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    escapes: JsonEscapes

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        return self.escapes.written(raw_text(pieces), encoding)


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    choice = KeySelection(options)
    text, encoding, bound = decoded_text(data, options, b",", b":")
    whole = parsed(text)
    document = collected(text, encoding, _units(text, whole, choice, is_escaped(text)), bound)
    return with_messages(choice.checked(replace(document, language=_language(whole, options.target_language))), bound)


def read_lines(data: bytes, options: ReadOptions) -> Document:
    """Read JSON lines, each of which is a document. See FormatInfo.read."""
    choice = KeySelection(options)
    text, encoding, bound = decoded_text(data, options, b",", b":")
    starts, ascii_alone = LineIndex(text).starts, is_escaped(text)
    units = (
        found
        for number, (start, end) in enumerate(pairwise([*starts, len(text)]), 1)
        if text[start:end].strip()
        for found in _units(text, parsed(text[start:end], number), choice, ascii_alone, start, f"line {number} ")
    )
    return with_messages(choice.checked(collected(text, encoding, units, bound)), bound)


def _units(
    text: str, whole: Any, choice: KeySelection, ascii_alone: bool, start: int = 0, line: str = ""
) -> Iterator[tuple[Unit, _Slot]]:
    """Yield the texts of a value, which starts at an offset."""
    for trail, found in _strings(whole, choice.root):
        if trail.takes(found.text):
            span = start + found.span[0], start + found.span[1]
            slot = _Slot(span, JsonEscapes(ascii_alone, "\\/" in text[slice(*span)]))
            yield Unit((found.text,), f"{line}{trail.shown()}".rstrip(), keeps_space=True), slot


def _language(whole: Any, wanted: str) -> tuple[Span, str] | None:
    """Return the place of the language that an Application Resource Bundle (ARB) declares, and its new value."""
    locales = [value for name, value in whole.pairs if name == "@@locale"] if isinstance(whole, JsonObject) else []
    if (
        not wanted
        or len(locales) != 1
        or not isinstance(locales[0], JsonString)
        or not languages_differ(locales[0].text, wanted)
    ):
        return None
    return locales[0].span, json.dumps(wanted.replace("-", "_"))


def _strings(value: Any, root: KeyPath) -> Iterator[tuple[KeyPath, JsonString]]:
    """Yield strings with their paths in document order, without recursion."""
    waiting: list[Iterator[tuple[KeyPath, Any]]] = [iter([(root, value)])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif isinstance(found[1], JsonString):
            yield found
        elif isinstance(found[1], JsonObject | list):
            waiting.append(_within(*found))


def _within(trail: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    """Yield members that are or may contain strings."""
    names = value.pairs if isinstance(value, JsonObject) else enumerate(value)
    return ((trail.within(str(name)), member) for name, member in names if isinstance(member, JsonString | JsonObject | list))
