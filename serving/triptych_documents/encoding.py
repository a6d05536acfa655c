"""Character encodings of documents: detection, byte order marks, errors.

Decoding and encoding again gives the same bytes. Line ends are ordinary characters.
"""

import codecs
import encodings
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from encodings.aliases import aliases

from triptych_documents.errors import DamagedDocumentError, DocumentError, OptionError

_MARKS = (  # longest first: UTF-32's little-endian mark starts with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_OTHERS = {"idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined"}  # text codecs that are not charsets
# Other names never reach Python's codecs, which would keep every name that they were ever asked for.
_KNOWN = frozenset({*aliases, *aliases.values(), *(module.name for module in pkgutil.iter_modules(encodings.__path__))})
_LONGEST = 40  # characters of a name
_LOOKED_AT = 64  # bytes at the start: in UTF-16, letters of Latin script and spaces have a zero
_MARKED = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # codecs that write a byte order mark


@dataclass(frozen=True, slots=True)
class Encoding:
    """Character encoding of a document."""

    name: str = "utf-8"  # Python codec that writes no byte order mark
    mark: bytes = b""  # byte order mark at the start of the document; often empty

    def encode(self, text: str) -> bytes:
        """Encode the text of a document. Raises DocumentError: the encoding lacks a character."""
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            character = text[error.start]
            problem = f"{character!r} (U+{ord(character):04X}) does not exist in the document's encoding {self.name}"
            raise DocumentError(f"{_line(text[: error.start])}: {problem}") from None

    def has(self, text: str) -> bool:
        """Return whether the encoding has all characters."""
        try:
            text.encode(self.name)
        except UnicodeEncodeError:
            return False
        return True

    def escaped(self, text: str, escape: Callable[[str], str]) -> str:
        """Replace each character that the encoding lacks by its escape, such as `&#8212;`."""
        return text if self.has(text) else "".join(one if self.has(one) else escape(one) for one in text)


def reference(character: str) -> str:
    """Return the character reference of XML, HTML and Markdown, which any encoding can represent."""
    return f"&#{ord(character)};"


def surrogate(text: str) -> str:
    """Return the first lone surrogate of a text, "" if none. No encoding can write one, but escapes can contain them."""
    found = None if text.isascii() else _SURROGATE.search(text)
    return found[0] if found else ""


def decode(data: bytes, encoding: str = "", declared: str = "") -> tuple[str, Encoding]:
    """Decode a document and return its text without byte order mark, and the encoding to write it with.

    Args:
        encoding: encoding given by the user; overrides everything else.
        declared: encoding that the document declares; a byte order mark overrides it. Default: UTF-8.

    Raises:
        OptionError: `encoding` is not a known encoding.
        DamagedDocumentError: `declared` is unknown, or the bytes are not in the encoding, or look like another one.
    """
    mark, marked = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
    if encoding:
        name = _named(encoding, lambda problem: OptionError("encoding", problem))
        found = Encoding(marked, mark) if marked and _family(marked) == _family(name) else Encoding(_MARKED.get(name, name))
    elif marked:
        found = Encoding(marked, mark)
    else:
        if not declared and 0 in data[:_LOOKED_AT]:
            problem = "zero bytes, which no text has: name the encoding, such as utf-16-le if there is no byte order mark"
            raise DamagedDocumentError(problem, "line 1")
        name = _named(declared or "utf-8", DamagedDocumentError)
        found = Encoding(_MARKED.get(name, name))
    return _decoded(data[len(found.mark) :], found.name), found


def _named(encoding: str, problem: Callable[[str], DocumentError]) -> str:
    try:
        known = encodings.normalize_encoding(encoding[: _LONGEST + 1]).lower()
        if len(encoding) > _LONGEST or known not in _KNOWN:
            raise LookupError
        codec = codecs.lookup(known)
        "".encode(codec.name)  # fails for binary codecs
        if codec.name.replace("-", "_") in _OTHERS:
            raise LookupError(codec.name)
    except (LookupError, ValueError):
        raise problem(f"{encoding[:_LONGEST]!r} is not a known character encoding") from None
    return codec.name


def _family(name: str) -> str:
    return name.removesuffix("-le").removesuffix("-be").removesuffix("-sig")


def _decoded(data: bytes, codec: str) -> str:
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(codec, "replace")
        problem = f"byte 0x{data[error.start]:02X} at {error.start} is not valid {codec}"
        remedy = "save the document in UTF-8, or name its encoding, such as latin-1"  # not all APIs let callers name it
        raise DamagedDocumentError(f"{problem}; {remedy}", _line(before)) from None
    if text.encode(codec) != data:
        raise DamagedDocumentError(f"contains bytes that {codec} cannot write back unchanged")
    return text


def _line(before: str) -> str:
    return f"line {before.count(chr(10)) + 1}"
