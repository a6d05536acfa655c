r"""Message files of a text per key: Java's .properties and Apple's .strings. Keys, comments and everything else stay.

A value of .properties ends with its line, unless that ends with a backslash. Java's MessageFormat, for messages with
placeholders such as `{0}`, reads `''` as an apostrophe.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.escapes import unescaped
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.text_document import LineIndex, Span, collected, decoded_text
from triptych_documents.formats.structured.keys import is_text
from triptych_documents.unit import Piece, Unit, raw_text

_LINE = re.compile(  # a comment, or a key and its value
    r"[ \t\f]*+(?:[#!][^\r\n]*+"
    r"|(?P<key>(?:[^\s\\=:#!]|\\[^\r\n])(?:[^\s\\=:]|\\[^\r\n])*+)(?:[ \t\f]*+[=:][ \t\f]*+|[ \t\f]++|(?=[\r\n]|\Z))"
    r"(?P<value>(?:[^\r\n\\]|\\(?:\r\n|[\s\S]))*+))?[^\r\n]*+(?:\r\n|[\r\n]|\Z)"
)
_CONTINUED = re.compile(r"\\(?:\r\n|[\r\n])[ \t\f]*")
_ENTRY = re.compile(  # white space, a comment, or an entry
    r'\s++|//[^\r\n]*+|/\*(?>[\s\S]*?\*/)|(?P<key>"(?:[^"\\]|\\[\s\S])*+"|[\w.-]++)\s*+='
    r'\s*+"(?P<value>(?:[^"\\]|\\[\s\S])*+)"\s*+;'
)
_WRITTEN = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"})
_ARGUMENT = re.compile(r"\{\d+[^{}]*\}")


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    mark: str  # of the escapes of characters: "u" or "U"
    ascii_alone: bool = False  # all other characters are escaped
    quoted: bool = False  # in quotation marks
    doubled: bool = False  # apostrophes are doubled

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        text = raw_text(pieces).translate(_WRITTEN)
        text = text.replace("'", "''") if self.doubled else text
        text = text.replace('"', '\\"') if self.quoted else re.sub(r"^ ", r"\\ ", text)
        return (Encoding("ascii") if self.ascii_alone else encoding).escaped(text, self._escape)

    def _escape(self, character: str) -> str:
        data = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\{self.mark}{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def read_properties(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    text, encoding, bound = decoded_text(data, options, b"=", b":")

    def entries() -> Iterator[tuple[Unit, _Slot]]:
        for match in _LINE.finditer(text):
            value = _CONTINUED.sub("", match["value"] or "")
            shown = unescaped(value)
            doubled = "''" in shown and _ARGUMENT.search(shown) is not None
            slot = _Slot(match.span("value"), "u", text.isascii(), doubled=doubled)
            if is_text(shown):
                yield Unit((shown.replace("''", "'") if doubled else shown,), unescaped(match["key"]), keeps_space=True), slot

    return with_messages(collected(text, encoding, entries(), bound), bound)


def read_strings(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    text, encoding, bound = decoded_text(data, options, b"=")
    lines = LineIndex(text)

    def entries() -> Iterator[tuple[Unit, _Slot]]:
        at = 0
        while at < len(text):
            if (match := _ENTRY.match(text, at)) is None:
                raise DamagedDocumentError('expected "key" = "value"; or a comment', lines.where(at))
            at = match.end()
            if (value := match["value"]) and is_text(shown := unescaped(value)):
                where = unescaped(match["key"].strip('"'))
                yield Unit((shown,), where, keeps_space=True), _Slot(match.span("value"), "U", quoted=True)

    return with_messages(collected(text, encoding, entries(), bound), bound)
