"""XML as a row of tokens that know their places (XML 1.0, fifth edition; Namespaces in XML 1.0).

Expat parses; a token is the span of the document's text that one of its events stands for. The tokens of a document cover it
without gaps, so whoever replaces the spans of some of them leaves every other character as it was.

Documents are not trusted: entities that a document declares are refused, so that nothing can expand; nothing outside of the
document is ever read; elements nest to a limit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from xml.parsers import expat

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError, DocumentError

MAX_DEPTH = 1_000  # elements inside each other
MAX_DEFAULTS = 100  # attributes' default values that a document declares: expat looks at each for every element
XML = "{http://www.w3.org/XML/1998/namespace}"  # of xml:space and xml:lang
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Kind(Enum):
    """What a token is."""

    START = "start"  # <a>
    END = "end"  # </a>
    EMPTY = "empty"  # <a/>
    TEXT = "text"  # characters with their character references; neighbours are one token
    CDATA = "cdata"  # <![CDATA[...]]>
    COMMENT = "comment"
    INSTRUCTION = "instruction"  # <?...?>, the XML declaration too
    DOCTYPE = "doctype"  # with its internal subset
    REFERENCE = "reference"  # &name; of an entity that an external DTD may declare; never expanded
    SPACE = "space"  # between what stands outside of the root element


class Token(NamedTuple):
    """A part of a document. A tuple, as a document may have a million of them and frozen dataclasses are slow to make.

    Args:
        start: first character of its span of the document's text.
        end: behind its last character.
        line: of its first character, from 1.
        depth: elements around it; an element's START and END have the same.
        name: of an element: `{namespace}local`, or `local` where it has no namespace.
        attributes: of START and EMPTY: values by names, which are written like an element's; without xmlns declarations.
        text: of TEXT and CDATA: what a reader sees, line ends as \\n.
    """

    kind: Kind
    start: int
    end: int
    line: int
    depth: int
    name: str = ""
    attributes: Mapping[str, str] = _NOTHING
    text: str = ""

    @property
    def opens(self) -> bool:
        """An element begins here."""
        return self.kind in (Kind.START, Kind.EMPTY)


def tokens(text: str, *, max_depth: int = MAX_DEPTH) -> list[Token]:
    """The tokens of a document, in order: `"".join(text[t.start:t.end] for t in tokens(text)) == text`.

    Args:
        text: without a byte order mark; what its XML declaration says of an encoding is ignored.
        max_depth: of elements.

    Raises:
        DamagedDocumentError: it is not well-formed, declares entities or nests too deep.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise DamagedDocumentError(f"half a surrogate pair at character {error.start}") from error
    return _Reader(text, data, max_depth).read()


def closings(found: Sequence[Token]) -> dict[int, int]:
    """For the index of each START the index of its END, and for that of each EMPTY itself."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(found):
        if token.kind is Kind.START:
            opened.append(index)
        elif token.kind is Kind.END:
            ends[opened.pop()] = index
        elif token.kind is Kind.EMPTY:
            ends[index] = index
    return ends


@dataclass(slots=True)
class _Pending:
    """The token whose end is not known before the next event."""

    kind: Kind
    start: int
    line: int
    depth: int
    name: str
    attributes: Mapping[str, str]


class _Reader:
    """Expat's events as tokens."""

    def __init__(self, text: str, data: bytes, max_depth: int) -> None:
        self._text, self._data, self._max_depth = text, data, max_depth
        self._plain = len(data) == len(text)  # bytes and characters count the same
        self._byte = self._character = 0
        self._depth = 0
        self._cdata = self._doctype = False
        self._defaults = 0
        self._pending: _Pending | None = None
        self._more: list[str] = []  # of the pending token's text
        self._found: list[Token] = []
        self._names: dict[str, str] = {}
        self._parser = self._made()

    def read(self) -> list[Token]:
        try:
            self._parser.Parse(self._data, True)
        except expat.ExpatError as error:
            raise DamagedDocumentError(
                f"not well-formed XML: {expat.ErrorString(error.code)}", f"line {error.lineno}, column {error.offset + 1}"
            ) from error
        self._close(len(self._text))
        return self._found

    def _made(self) -> expat.XMLParserType:
        # The text is in UTF-8 now, whatever its declaration says. No handler for external entities: none is ever read.
        parser = expat.ParserCreate("utf-8", "}")
        parser.buffer_text = False
        parser.specified_attributes = True  # what is declared in one place would otherwise be copied to every element
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartCdataSectionHandler = self._cdata_start
        parser.EndCdataSectionHandler = self._cdata_end
        parser.CommentHandler = self._one(Kind.COMMENT)
        parser.ProcessingInstructionHandler = self._one(Kind.INSTRUCTION)
        parser.XmlDeclHandler = self._one(Kind.INSTRUCTION)
        parser.EndDoctypeDeclHandler = self._doctype_end
        parser.EntityDeclHandler = self._entity
        parser.AttlistDeclHandler = self._declared
        parser.DefaultHandler = self._other  # having one also keeps expat from expanding entities in content
        return parser

    def _place(self) -> int:
        """The event's character; events come in order, so each byte is counted once."""
        byte = self._parser.CurrentByteIndex
        if self._plain:
            return byte
        self._character += len(self._data[self._byte : byte].decode())
        self._byte = byte
        return self._character

    def _open(self, kind: Kind, name: str = "", attributes: Mapping[str, str] = _NOTHING) -> None:
        place = self._place()
        self._close(place)
        self._pending = _Pending(kind, place, self._parser.CurrentLineNumber, self._depth, name, attributes)

    def _close(self, end: int) -> None:
        was = self._pending
        if was is None:
            return
        text = "".join(self._more)
        self._more.clear()
        self._found.append(Token(was.kind, was.start, end, was.line, was.depth, was.name, was.attributes, text))
        self._pending = None

    def _clark(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = "{" + name if "}" in name else name
        return known

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        named = {self._clark(key): value for key, value in attributes.items()} if attributes else _NOTHING
        self._open(Kind.START, self._clark(name), named)
        self._depth += 1
        if self._depth > self._max_depth:
            raise DamagedDocumentError(f"elements nest deeper than {self._max_depth}", f"line {self._parser.CurrentLineNumber}")

    def _end(self, name: str) -> None:
        self._depth -= 1
        place, was = self._place(), self._pending
        if was is not None and was.kind is Kind.START and self._text.endswith("/>", was.start, place):
            was.kind = Kind.EMPTY  # expat reports its end at the place behind it, with no characters of its own
            return
        self._open(Kind.END, self._clark(name))

    def _characters(self, data: str) -> None:
        if self._pending is None or not (self._cdata or self._pending.kind is Kind.TEXT):
            self._open(Kind.TEXT)
        self._more.append(data)

    def _cdata_start(self) -> None:
        self._open(Kind.CDATA)
        self._cdata = True

    def _cdata_end(self) -> None:
        self._cdata = False

    def _one(self, kind: Kind) -> Callable[..., None]:
        def opened(*_: object) -> None:
            if not self._doctype:
                self._open(kind)

        return opened

    def _doctype_end(self) -> None:
        self._doctype = False

    def _entity(self, name: str, *_: object) -> None:
        raise DamagedDocumentError(f"declares the entity {name!r}; such documents are not read", self._line())

    def _declared(self, _element: str, _name: str, _type: str, default: str | None, _required: int) -> None:
        self._defaults += default is not None
        if self._defaults > MAX_DEFAULTS:
            raise DamagedDocumentError(f"declares more than {MAX_DEFAULTS} default values of attributes", self._line())

    def _line(self) -> str:
        return f"line {self._parser.CurrentLineNumber}"

    def _other(self, data: str) -> None:
        if self._doctype:
            return
        if data == "<!DOCTYPE":
            self._doctype = True
            self._open(Kind.DOCTYPE)
        elif data.startswith("&"):
            self._open(Kind.REFERENCE, data[1:-1])
        else:
            self._space()

    def _space(self) -> None:
        if self._pending is None or self._pending.kind is not Kind.SPACE:
            self._open(Kind.SPACE)


_WIDE = ((b"<\0\0\0", "utf-32-le"), (b"\0\0\0<", "utf-32-be"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']""")
_ATTRIBUTE = re.compile(r"""\s([^\s=<>/"']+)\s*=\s*("[^"]*"|'[^']*')""")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", "\r": "&#13;"})
_ATTRIBUTES: dict[str, str | int | None] = {"&": "&amp;", "<": "&lt;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


@dataclass(frozen=True, slots=True)
class XmlText:
    """A document's text without its byte order mark, and how it is written in bytes."""

    text: str
    encoding: Encoding

    def encoded(self, text: str) -> bytes:
        """Another text in the same encoding; characters that it lacks become character references."""
        return self.encoding.encode(self.encoding.escaped(text, lambda one: f"&#{ord(one)};"))


def decoded(data: bytes) -> XmlText:
    """By its byte order mark, else by its XML declaration, else UTF-8.

    Raises:
        DamagedDocumentError: its bytes are not in the encoding that it says, or nobody knows that encoding.
    """
    return XmlText(*decode(data, declared=_declared(data)))


def _declared(data: bytes) -> str:
    for start, name in _WIDE:
        if data.startswith(start):
            return name
    found = _DECLARED.match(data[:1_024])
    name = found[1].decode() if found else ""
    return "" if name.lower().startswith(("utf-16", "utf-32", "ucs")) else name  # it is not: its bytes say so


def written_text(text: str) -> str:
    """As content of an element: only what must be is escaped.

    Raises:
        DocumentError: XML cannot have one of its characters.
    """
    return _checked(text).translate(_TEXT).replace("]]>", "]]&gt;")


def written_attribute(text: str, quote: str = '"') -> str:
    """As an attribute's value between such quotes, without them; raises as `written_text`."""
    return _checked(text).translate(str.maketrans({**_ATTRIBUTES, quote: "&quot;" if quote == '"' else "&apos;"}))


def writable(text: str) -> str:
    """Without the characters that XML cannot have."""
    return _FORBIDDEN.sub("", text)


def _checked(text: str) -> str:
    found = _FORBIDDEN.search(text)
    if found:
        raise DocumentError(f"XML has no way to write the character U+{ord(found[0]):04X}")
    return text


def attribute_spans(tag: str) -> dict[str, tuple[int, int]]:
    """Where the values of a tag's attributes stand in it, without their quotes, by their names as they are written."""
    return {found[1]: (found.start(2) + 1, found.end(2) - 1) for found in _ATTRIBUTE.finditer(tag)}


def with_attribute(tag: str, name: str, value: str) -> str:
    """A start or empty tag with this attribute: its value is replaced, or it is put behind the others."""
    span = attribute_spans(tag).get(name)
    if span is not None:
        return tag[: span[0]] + written_attribute(value, tag[span[1]]) + tag[span[1] :]
    end = len(tag.rstrip("/>").rstrip()) if tag.endswith("/>") else len(tag[:-1].rstrip())
    return f'{tag[:end]} {name}="{written_attribute(value)}"{tag[end:]}'


def without_attribute(tag: str, name: str) -> str:
    """A start or empty tag without this attribute."""
    for found in _ATTRIBUTE.finditer(tag):
        if found[1] == name:
            return tag[: found.start()] + tag[found.end() :]
    return tag
