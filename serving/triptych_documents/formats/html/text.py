"""Text in HTML: character references, templating, encodings and escaping (HTML Living Standard, 13.1.4 and 13.2.3)."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import unescape

from triptych_documents.encoding import Encoding, decode, reference
from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag
from triptych_documents.formats.shared.text_document import Span
from triptych_documents.unit import Role

_META = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""", re.IGNORECASE)
_XML = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)""")
_LOOKED_AT = 1_024  # bytes at the start that may declare the encoding
# Encodings that browsers use for these labels (Encoding Standard, section 4.2).
_MEANT = {
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "latin1"), "cp1252"),
    **dict.fromkeys(("iso-8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987"), "cp949"),
    **{"iso-8859-9": "cp1254", "shift_jis": "cp932", "gb2312": "gbk"},
    "utf-16": "utf-8",  # a declaration that is readable as ASCII is not in UTF-16
}
_SPACE = re.compile(
    r"[ \t\n\r\f]+|&(?:Tab;|NewLine;|(?:#0*(?:9|10|12|13|32)(?![0-9])|#[xX]0*(?:9|[aAcCdD]|20)(?![0-9A-Fa-f]));?)"
)
_BRANCH = re.compile(  # where a branch, a loop, a block or a plural form of a template starts or ends
    r"(?:\{%[-+~]?|<%-?|<\?php)\s*(?:if|unless|el(?:se|if|sif|seif)|end\w*|for|foreach|case|when|block\w*|plural(?:ize)?|\})(?!\w)"
    r"|\{\{[~-]?\s*(?:[#/^]|(?:if|else|range|with)\b)"
)
# Braces to write as references because they would start templating: of any kind, {{ }} only, none.
TEMPLATE_BRACE = re.compile(r"\{(?=[{%#]|$)")
DOUBLE_BRACE = re.compile(r"\{(?=\{|$)")
NO_BRACE = re.compile(r"(?!)")


def decoded(data: bytes, encoding: str) -> tuple[str, Encoding]:
    """Decode a document by the encoding that it declares; raises as `decode`."""
    found = _META.search(data[:_LOOKED_AT]) or _XML.match(data[:_LOOKED_AT])
    declared = found[1].decode().lower() if found else ""
    if declared not in _MEANT:
        return decode(data, encoding, declared)
    try:
        return decode(data, encoding, _MEANT[declared])
    except DamagedDocumentError:
        return decode(data, encoding, declared)


class Texts:
    """Converts stretches of text to parts."""

    def __init__(self, text: str, hidden: Sequence[Span]) -> None:
        self._text, self._hidden = text, hidden
        self._ends = [end for _, end in hidden]

    def parts(self, start: int, end: int) -> Iterator[ScannedPart]:
        """Yield text with references resolved, and templating as tags."""
        for at in range(bisect_left(self._ends, start + 1), len(self._hidden)):
            begin, after = self._hidden[at]
            if begin >= end:
                break
            yield from self._plain(start, begin)
            start = min(after, end)
            yield ScannedPart(template(self._text[begin:start]), begin, start)
        yield from self._plain(start, end)

    def shown(self, start: int, end: int) -> str:
        return unescape(self._text[start:end])

    def _plain(self, start: int, end: int) -> Iterator[ScannedPart]:
        """Yield white space at both ends separately: written as references it has another length."""
        first = start
        while (space := _SPACE.match(self._text, first, end)) is not None:
            first = space.end()
        if first == end:
            yield from (ScannedPart(" ", start, end),) if start < end else ()
            return
        last = _spaces_before(self._text, first, end)
        yield from (ScannedPart(" ", start, first),) if start < first else ()
        yield ScannedPart(unescape(self._text[first:last]), first, last)
        yield from (ScannedPart(" ", last, end),) if last < end else ()


def _spaces_before(text: str, start: int, end: int) -> int:
    """Return the start of the white space that ends a stretch."""
    at = end
    while at > start:
        begin = text.rfind("&", max(start, at - 12), at)
        if text[at - 1] in " \t\n\r\f":
            at -= 1
        elif begin >= 0 and (found := _SPACE.match(text, begin, at)) is not None and found.end() == at:
            at = begin
        else:
            break
    return at


def template(raw: str) -> ScannedTag:
    """Return a tag for templating; what prints something shows itself, and no text moves across branches and loops."""
    prints = raw.startswith(("{{", "<%=", "<?=")) and raw[2:3] not in "#/!>^"  # Mustache: sections, comments, partials
    return ScannedTag(raw, Role.ALONE, shown=raw if prints else "", fixed=_BRANCH.match(raw) is not None)


def written(
    text: str, encoding: Encoding, *, quote: str = "", named_space: bool = False, braces: re.Pattern[str] = TEMPLATE_BRACE
) -> str:
    """Escape text for HTML as little as necessary.

    Args:
        text: as readers see it.
        encoding: of the document; characters that it lacks become references.
        quote: quote around an attribute's value; "" for text.
        named_space: write no-break spaces as &nbsp;, as the document does.
        braces: braces to write as references.

    Raises:
        DocumentError: HTML cannot represent a character.
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
    return reference(one)
