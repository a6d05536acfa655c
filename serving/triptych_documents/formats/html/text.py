"""Text in HTML: character references and templating in it, and how it is written (HTML Living Standard, 13.1.4 and 13.2.3)."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import unescape

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.formats.shared.inline_codes import Part, Tag
from triptych_documents.formats.shared.spans import Span
from triptych_documents.unit import Role

_META = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""", re.IGNORECASE)
_XML = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)""")
_LOOKED_AT = 1_024  # bytes in which a document must say its encoding
# What browsers take these names for (Encoding Standard, section 4.2).
_MEANT = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "iso-8859-9": "cp1254",
    "iso-8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "gb2312": "gbk",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "utf-16": "utf-8",  # a document whose bytes can be read so far is not
}
_SPACE = re.compile(
    r"[ \t\n\r\f]+|&(?:Tab;|NewLine;|(?:#0*(?:9|10|12|13|32)(?![0-9])|#[xX]0*(?:9|[aAcCdD]|20)(?![0-9A-Fa-f]));?)"
)
# Braces that are written in references, and so begin no templating: of any kind, of {{ }} alone, none.
TEMPLATE_BRACE = re.compile(r"\{(?=[{%#]|$)")
DOUBLE_BRACE = re.compile(r"\{(?=\{|$)")
NO_BRACE = re.compile(r"(?!)")


def decoded(data: bytes, encoding: str) -> tuple[str, Encoding]:
    """A document's text, and how to write it again.

    Args:
        data: the document.
        encoding: what the user says, or nothing: a byte order mark, what it says of itself, else UTF-8.

    Raises:
        OptionError: there is no such encoding.
        DamagedDocumentError: the bytes are not in it.
    """
    found = _META.search(data[:_LOOKED_AT]) or _XML.match(data[:_LOOKED_AT])
    declared = found[1].decode().lower() if found else ""
    if declared not in _MEANT:
        return decode(data, encoding, declared)
    try:
        return decode(data, encoding, _MEANT[declared])
    except DamagedDocumentError:
        return decode(data, encoding, declared)


class Texts:
    """Stretches of a document's text as parts.

    Args:
        text: of the document.
        hidden: its templating, in order.
    """

    def __init__(self, text: str, hidden: Sequence[Span]) -> None:
        self._text, self._hidden = text, hidden
        self._ends = [end for _, end in hidden]

    def parts(self, start: int, end: int) -> Iterator[Part]:
        """Text without references in it, and codes for templating."""
        for at in range(bisect_left(self._ends, start + 1), len(self._hidden)):
            begin, after = self._hidden[at]
            if begin >= end:
                break
            yield from self._plain(start, begin)
            start = min(after, end)
            yield Part(template(self._text[begin:start]), begin, start)
        yield from self._plain(start, end)

    def shown(self, start: int, end: int) -> str:
        """What a reader sees of it."""
        return unescape(self._text[start:end])

    def _plain(self, start: int, end: int) -> Iterator[Part]:
        """White space at both ends is a part of its own, as it may be written in references, which are longer than it."""
        first = _spaces(self._text, start, end)
        if first == end:
            yield from (Part(" ", start, end),) if start < end else ()
            return
        last = _spaces_before(self._text, first, end)
        yield from (Part(" ", start, first),) if start < first else ()
        yield Part(unescape(self._text[first:last]), first, last)
        yield from (Part(" ", last, end),) if last < end else ()


def _spaces(text: str, start: int, end: int) -> int:
    while (found := _SPACE.match(text, start, end)) is not None:
        start = found.end()
    return start


def _spaces_before(text: str, start: int, end: int) -> int:
    """Where the white space at the end begins."""
    last = start
    at = end
    while at > start:
        begin = text.rfind("&", max(start, at - 12), at)
        if text[at - 1] in " \t\n\r\f":
            at -= 1
        elif begin >= 0 and (found := _SPACE.match(text, begin, at)) is not None and found.end() == at:
            at = begin
        else:
            last = at
            break
    return last


def template(raw: str) -> Tag:
    """A code for templating; what prints something shows itself."""
    prints = raw.startswith(("{{", "<%=", "<?=")) and raw[2:3] not in "#/!>^"  # of Mustache: sections, comments, parts
    return Tag(raw, Role.ALONE, shown=raw if prints else "")


def written(
    text: str, encoding: Encoding, *, quote: str = "", named_space: bool = False, braces: re.Pattern[str] = TEMPLATE_BRACE
) -> str:
    """Text as HTML: only what would be read as something else is written in references.

    Args:
        text: as readers see it.
        encoding: of the document; what it lacks becomes a reference.
        quote: around an attribute's value; nothing for text.
        named_space: no-break spaces as &nbsp;, as the document does it.
        braces: that are written in references.

    Raises:
        DocumentError: HTML cannot have one of the characters.
    """
    out = text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;").replace("\r", "&#13;")
    if quote:
        out = out.replace(quote, "&quot;" if quote == '"' else "&#39;")
    if named_space:
        out = out.replace("\xa0", "&nbsp;")
    return encoding.escaped(braces.sub("&#123;", out), _reference)


def _reference(one: str) -> str:
    if "\ud800" <= one <= "\udfff":
        raise DocumentError(f"HTML has no way to write half a surrogate pair, U+{ord(one):04X}")
    return f"&#{ord(one)};"
