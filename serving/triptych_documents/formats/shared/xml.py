"""XML as tokens with their spans and as trees, and writing text and attributes (XML 1.0, fifth edition; Namespaces in XML 1.0).

Expat parses; a token is the span of text of one of its events. Tokens cover the document without gaps, so replacing the spans
of some leaves every other character unchanged.

Documents are not trusted: declared entities are rejected, so nothing can expand; no external resource is read; nesting is
limited.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from xml.parsers import expat

from triptych_documents.encoding import Encoding, decode, reference
from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.interruption import checkpoint

MAX_DEPTH = 1_000  # nested elements
MAX_DEFAULTS = 100  # declared default values of attributes: expat checks each of them for every element
XML = "{http://www.w3.org/XML/1998/namespace}"  # namespace of xml:space and xml:lang
_NOTHING: Mapping[str, str] = MappingProxyType({})


class XmlTokenKind(Enum):
    START = "start"  # <a>
    END = "end"  # </a>
    EMPTY = "empty"  # <a/>
    TEXT = "text"  # characters with their character references; neighbours are one token
    CDATA = "cdata"  # <![CDATA[...]]>
    COMMENT = "comment"
    INSTRUCTION = "instruction"  # <?...?>, the XML declaration too
    DOCTYPE = "doctype"  # with its internal subset
    REFERENCE = "reference"  # &name; of an entity that an external DTD may declare; never expanded
    SPACE = "space"  # outside of the root element


class XmlToken(NamedTuple):
    """A stretch of a document. A tuple: a document may have a million of them, and frozen dataclasses are slow to create."""

    kind: XmlTokenKind
    start: int  # offset of its first character
    end: int  # offset after its last character
    line: int  # line of its first character, from 1
    depth: int  # number of enclosing elements; START and END of an element have the same
    name: str = ""
    attributes: Mapping[str, str] = _NOTHING
    text: str = ""

    @property
    def opens(self) -> bool:
        return self.kind in (XmlTokenKind.START, XmlTokenKind.EMPTY)


def tokens(text: str, *, max_depth: int = MAX_DEPTH) -> list[XmlToken]:
    """Tokenize a document: `"".join(text[t.start:t.end] for t in tokens(text)) == text`.

    Args:
        text: without byte order mark; the encoding in the XML declaration is ignored.
        max_depth: maximum nesting of elements.

    Raises:
        DamagedDocumentError: not well-formed, declares entities or nests too deep.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise DamagedDocumentError(f"half a surrogate pair at character {error.start}") from error
    return _Reader(text, data, max_depth).read()


@dataclass(slots=True)
class _Pending:
    """A token whose end is not known before the next event."""

    kind: XmlTokenKind
    start: int
    line: int
    depth: int
    name: str
    attributes: Mapping[str, str]


class _Reader:
    """Converts Expat's events to tokens."""

    def __init__(self, text: str, data: bytes, max_depth: int) -> None:
        self._text, self._data, self._max_depth = text, data, max_depth
        self._plain = len(data) == len(text)  # byte offsets are character offsets
        self._byte = self._character = 0
        self._depth = 0
        self._cdata = self._doctype = False
        self._defaults = 0
        self._pending: _Pending | None = None
        self._more: list[str] = []  # of the pending token's text
        self._found: list[XmlToken] = []
        self._names: dict[str, str] = {}
        self._parser = self._made()

    def read(self) -> list[XmlToken]:
        try:
            self._parser.Parse(self._data, True)
        except expat.ExpatError as error:
            raise DamagedDocumentError(
                f"not well-formed XML: {expat.ErrorString(error.code)}", f"line {error.lineno}, column {error.offset + 1}"
            ) from error
        self._close(len(self._text))
        return self._found

    def _made(self) -> expat.XMLParserType:
        # The data is UTF-8 whatever its declaration says. Without a handler, external entities are never read.
        parser = expat.ParserCreate("utf-8", "}")
        parser.buffer_text = False
        parser.specified_attributes = True  # otherwise declared default values are copied to every element
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartCdataSectionHandler = self._cdata_start
        parser.EndCdataSectionHandler = self._cdata_end
        parser.CommentHandler = self._one(XmlTokenKind.COMMENT)
        parser.ProcessingInstructionHandler = self._one(XmlTokenKind.INSTRUCTION)
        parser.XmlDeclHandler = self._one(XmlTokenKind.INSTRUCTION)
        parser.EndDoctypeDeclHandler = self._doctype_end
        parser.EntityDeclHandler = self._entity
        parser.AttlistDeclHandler = self._declared
        parser.DefaultHandler = self._other  # also keeps expat from expanding entities in content
        return parser

    def _place(self) -> int:
        """Return the character offset of the event; events come in order, so each byte is counted once."""
        checkpoint()
        byte = self._parser.CurrentByteIndex
        if self._plain:
            return byte
        self._character += len(self._data[self._byte : byte].decode())
        self._byte = byte
        return self._character

    def _open(self, kind: XmlTokenKind, name: str = "", attributes: Mapping[str, str] = _NOTHING) -> None:
        place = self._place()
        self._close(place)
        self._pending = _Pending(kind, place, self._parser.CurrentLineNumber, self._depth, name, attributes)

    def _close(self, end: int) -> None:
        was, self._pending = self._pending, None
        if was is not None:
            text = "".join(self._more)
            self._found.append(XmlToken(was.kind, was.start, end, was.line, was.depth, was.name, was.attributes, text))
            self._more.clear()

    def _clark(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = "{" + name if "}" in name else name
        return known

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        named = {self._clark(key): value for key, value in attributes.items()} if attributes else _NOTHING
        self._open(XmlTokenKind.START, self._clark(name), named)
        self._depth += 1
        if self._depth > self._max_depth:
            raise DamagedDocumentError(f"elements nest deeper than {self._max_depth}", self._line())

    def _end(self, name: str) -> None:
        self._depth -= 1
        place, was = self._place(), self._pending
        if was is not None and was.kind is XmlTokenKind.START and self._text.endswith("/>", was.start, place):
            was.kind = XmlTokenKind.EMPTY  # expat reports an empty END after the tag
            return
        self._open(XmlTokenKind.END, self._clark(name))

    def _characters(self, data: str) -> None:
        if self._pending is None or not (self._cdata or self._pending.kind is XmlTokenKind.TEXT):
            self._open(XmlTokenKind.TEXT)
        self._more.append(data)

    def _cdata_start(self) -> None:
        self._open(XmlTokenKind.CDATA)
        self._cdata = True

    def _cdata_end(self) -> None:
        self._cdata = False

    def _one(self, kind: XmlTokenKind) -> Callable[..., None]:
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
            self._open(XmlTokenKind.DOCTYPE)
        elif data.startswith("&"):
            self._open(XmlTokenKind.REFERENCE, data[1:-1])
        elif self._pending is None or self._pending.kind is not XmlTokenKind.SPACE:
            self._open(XmlTokenKind.SPACE)


class XmlTree:
    """Element tree of an XML text; an element is identified by the index of its start token. Raises as `tokens` does."""

    def __init__(self, text: str, max_depth: int = MAX_DEPTH) -> None:
        self.text = text
        self.tokens: Sequence[XmlToken] = tokens(text, max_depth=max_depth)
        self._ends: dict[int, int] = {}
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind is XmlTokenKind.START:
                opened.append(index)
            elif token.kind is XmlTokenKind.END:
                self._ends[opened.pop()] = index
            elif token.kind is XmlTokenKind.EMPTY:
                self._ends[index] = index

    def root(self) -> int:
        return next(index for index, token in enumerate(self.tokens) if token.opens)

    def end(self, element: int) -> int:
        """Return the index of the end token; the same index for an empty element."""
        return self._ends[element]

    def span(self, element: int) -> tuple[int, int]:
        return self.tokens[element].start, self.tokens[self._ends[element]].end

    def inside(self, element: int) -> tuple[int, int]:
        """Return the span between the tags; empty and after the tag for an empty element."""
        first, last = self.tokens[element], self.tokens[self._ends[element]]
        return (first.end, last.end if first is last else last.start)

    def nodes(self, element: int) -> Iterator[int]:
        """Yield children: elements and all other tokens."""
        index, end = element + 1, self._ends[element]
        while index < end:
            yield index
            index = self._ends.get(index, index) + 1

    def children(self, element: int) -> Iterator[int]:
        return (index for index in self.nodes(element) if self.tokens[index].opens)

    def within(self, element: int) -> Iterator[int]:
        """Yield all descendant elements in order."""
        return (index for index in range(element + 1, self._ends[element]) if self.tokens[index].opens)

    def characters(self, element: int) -> str:
        return "".join(token.text for token in self.tokens[element : self._ends[element]])

    def tag(self, element: int) -> str:
        return self.text[self.tokens[element].start : self.tokens[element].end]

    def raw(self, element: int) -> str:
        start, end = self.span(element)
        return self.text[start:end]


def read_tree(text: str, root: str) -> XmlTree:
    """Parse a document whose root element has this name. Raises DamagedDocumentError: it has another one, and as `tokens`."""
    tree = XmlTree(text)
    found = tree.tokens[tree.root()]
    if found.name != root:
        raise DamagedDocumentError(f"the root element is {found.name}, not {root}", f"line {found.line}")
    return tree


_WIDE = ((b"<\0\0\0", "utf-32-le"), (b"\0\0\0<", "utf-32-be"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)["']""")
_ATTRIBUTE = re.compile(r"""\s([^\s=<>/"']+)\s*=\s*("[^"]*"|'[^']*')""")
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", "\r": "&#13;"})
_ATTRIBUTES: dict[str, str | int | None] = {"&": "&amp;", "<": "&lt;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}


def encoded(text: str, encoding: Encoding) -> bytes:
    """Encode the text of a document; characters that the encoding lacks become character references."""
    return encoding.encode(encoding.escaped(text, reference))


def decoded(data: bytes) -> tuple[str, Encoding]:
    """Decode by byte order mark, else by XML declaration, else as UTF-8. Returns the text without byte order mark.

    Raises:
        DamagedDocumentError: the declared encoding is unknown, or the bytes are not in it.
    """
    return decode(data, declared=_declared(data))


def _declared(data: bytes) -> str:
    for start, name in _WIDE:
        if data.startswith(start):
            return name
    found = _DECLARED.match(data[:1_024])
    name = found[1].decode() if found else ""
    return "" if name.lower().startswith(("utf-16", "utf-32", "ucs")) else name  # the bytes show that it is not


def written_text(text: str) -> str:
    """Escape text for the content of an element, as little as necessary.

    Raises:
        DocumentError: XML cannot represent a character.
    """
    return _checked(text).translate(_TEXT).replace("]]>", "]]&gt;")


def written_attribute(text: str, quote: str = '"') -> str:
    """Escape the value of an attribute, without the quotes; raises as `written_text`."""
    return _checked(text).translate(str.maketrans({**_ATTRIBUTES, quote: "&quot;" if quote == '"' else "&apos;"}))


def writable(text: str) -> str:
    """Remove characters that XML cannot represent."""
    return FORBIDDEN.sub("", text)


def _checked(text: str) -> str:
    found = FORBIDDEN.search(text)
    if found:
        raise DocumentError(f"XML has no way to write the character U+{ord(found[0]):04X}")
    return text


def attribute_spans(tag: str) -> dict[str, tuple[int, int]]:
    """Return the spans of attribute values in a tag, without quotes, by name as written."""
    return {found[1]: (found.start(2) + 1, found.end(2) - 1) for found in _ATTRIBUTE.finditer(tag)}


def with_attribute(tag: str, name: str, value: str) -> str:
    """Set an attribute of a start or empty tag: replace its value or append it."""
    span = attribute_spans(tag).get(name)
    if span is not None:
        return tag[: span[0]] + written_attribute(value, tag[span[1]]) + tag[span[1] :]
    end = len(tag.rstrip("/>").rstrip()) if tag.endswith("/>") else len(tag[:-1].rstrip())
    return f'{tag[:end]} {name}="{written_attribute(value)}"{tag[end:]}'


def namespaces(tag: str) -> str:
    """Return the namespace declarations of a tag as written, each with the white space before it."""
    if "xmlns" not in tag:  # the common case, quick to check
        return ""
    return "".join(found[0] for found in _ATTRIBUTE.finditer(tag) if found[1].partition(":")[0] == "xmlns")


def without_attribute(tag: str, name: str) -> str:
    for found in _ATTRIBUTE.finditer(tag):
        if found[1] == name:
            return tag[: found.start()] + tag[found.end() :]
    return tag


def prefix(tag: str) -> str:
    """Return the prefix of a tag with its colon: "w:" for "<w:p ...>"; "" if none."""
    name = tag[1:].split(None, 1)[0].rstrip("/>")
    return name[: name.find(":") + 1]
