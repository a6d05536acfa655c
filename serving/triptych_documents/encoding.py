"""Bytes and the text that they are: byte order marks, character encodings, and what to say where they do not fit.

A text that is decoded here and encoded again is the same bytes. Line ends are characters like others.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

from triptych_documents.errors import DamagedDocumentError, DocumentError, OptionError

_MARKS = (  # the longest first: UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_OTHERS = frozenset({"idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined"})  # take text but are no charsets
_MARKED = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # codecs that write a mark of their own


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a document's text becomes bytes.

    Args:
        name: of Python's codec, one that writes no byte order mark.
        mark: the byte order mark that the document begins with; mostly none.
    """

    name: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """The document's bytes.

        Raises:
            DocumentError: the encoding lacks a character.
        """
        try:
            return self.mark + text.encode(self.name)
        except UnicodeEncodeError as error:
            character = text[error.start]
            problem = f"{character!r} (U+{ord(character):04X}) cannot be written in the document's encoding {self.name}"
            raise DocumentError(f"{_place(text[: error.start])}: {problem}") from None

    def has(self, text: str) -> bool:
        """Whether all characters can be written."""
        try:
            text.encode(self.name)
        except UnicodeEncodeError:
            return False
        return True

    def escaped(self, text: str, escape: Callable[[str], str]) -> str:
        """The text with each character that cannot be written as `escape` has it, such as `&#8212;`."""
        return text if self.has(text) else "".join(one if self.has(one) else escape(one) for one in text)


def surrogate(text: str) -> str:
    """Half a surrogate pair in a text, which no encoding can write; formats with escapes can say it. Mostly nothing."""
    found = None if text.isascii() else _SURROGATE.search(text)
    return found[0] if found else ""


def decode(data: bytes, encoding: str = "", declared: str = "") -> tuple[str, Encoding]:
    """A document's text without its byte order mark, and how to write it again.

    Args:
        data: the document.
        encoding: what the user says; believed against everything else.
        declared: what the document says of itself; a byte order mark knows better. Without all of them it is UTF-8.

    Raises:
        OptionError: there is no encoding named `encoding`.
        DamagedDocumentError: there is none named `declared`, or the bytes are not in the encoding.
    """
    mark, marked = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
    if encoding:
        name = _named(encoding, lambda problem: OptionError("encoding", problem))
        found = Encoding(marked, mark) if marked and _family(marked) == _family(name) else Encoding(_MARKED.get(name, name))
    elif marked:
        found = Encoding(marked, mark)
    else:
        name = _named(declared or "utf-8", DamagedDocumentError)
        found = Encoding(_MARKED.get(name, name))
    return _decoded(data[len(found.mark) :], found), found


def _named(encoding: str, problem: Callable[[str], DocumentError]) -> str:
    try:
        codec = codecs.lookup(encoding)
        "".encode(codec.name)  # some codecs are not of text
        if codec.name.replace("-", "_") in _OTHERS:
            raise LookupError(codec.name)
    except (LookupError, ValueError):
        raise problem(f"{encoding!r} is not a known character encoding") from None
    return codec.name


def _family(name: str) -> str:
    return name.removesuffix("-le").removesuffix("-be").removesuffix("-sig")


def _decoded(data: bytes, encoding: Encoding) -> str:
    try:
        text = data.decode(encoding.name)
        same = text.encode(encoding.name) == data
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding.name, "replace")
        problem = f"byte 0x{data[error.start]:02X} at {error.start} is not {encoding.name}; say which encoding the document has"
        raise DamagedDocumentError(problem, _place(before)) from None
    if not same:
        raise DamagedDocumentError(f"it has bytes that cannot be written again as they are in {encoding.name}")
    return text


def _place(before: str) -> str:
    return f"line {before.count(chr(10)) + 1}"
