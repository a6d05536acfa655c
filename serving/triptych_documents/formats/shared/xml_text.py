"""XML between bytes and text, and how text is written into it (XML 1.0, fifth edition, sections 2.2, 2.4, 3.3.3 and 4.3.3)."""

import re
from dataclasses import dataclass

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DocumentError

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
