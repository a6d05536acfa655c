"""Content of XLIFF's <source> as pieces (XLIFF 1.2, section 2.4; XLIFF 2.1, section 4.7)."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from triptych_documents.formats.shared.xml import XmlToken, XmlTokenKind, written_text
from triptych_documents.unit import Code, Piece, Role, joined

AROUND = frozenset({"g", "mrk", "pc"})  # elements with translatable content
_STARTS = {"bpt": "rid", "bx": "rid", "sc": "id", "sm": "id"}  # opening half, and the attribute that names the pair
_ENDS = {"ept": "rid", "ex": "rid", "ec": "startRef", "em": "startRef"}
_HALVES = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}
_NAMED = re.compile(r"(START|CLOSE)_(.+?)(_\d+)?")  # <x id="START_LINK"/>, as Angular writes pairs


@dataclass(slots=True)
class _Inline:
    """A code before its other half has been found."""

    raw: str
    role: Role = Role.ALONE
    key: tuple[str, str] | None = None  # pair of a half that is an element of its own
    shown: str = ""
    partner: "_Inline | None" = field(default=None, repr=False)


@dataclass(frozen=True)
class InlineContent:
    text: str
    found: Sequence[XmlToken]  # all tokens of the document
    closings: Mapping[int, int]  # result of `xml.closings`
    namespace: str  # namespace of XLIFF in this document, in braces, or ""

    def name(self, index: int) -> str:
        """Return the local name of an XLIFF element; "" for others."""
        name = self.found[index].name
        return name[len(self.namespace) :] if name.startswith(self.namespace) else ""

    def pieces(self, start: int, end: int) -> tuple[Piece, ...]:
        """Return the pieces of tokens [start, end) without comments and instructions."""
        return _coded(_paired(self._inlines(start, end)))

    def words(self, start: int, end: int) -> str:
        return "".join(token.text for token in self.found[start:end])

    def raw(self, start: int, end: int) -> str:
        return self.text[self.found[start].start : self.found[end].start]

    def _inlines(self, start: int, end: int) -> list[str | _Inline]:
        found: list[str | _Inline] = []
        opened: list[_Inline] = []
        limits = [end]  # codes end inside of the enclosing element
        while start < end:
            token = self.found[start]
            start, before = start + 1, start
            if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
                found.append(token.text)
            elif token.kind is XmlTokenKind.REFERENCE:
                found.append(_Inline(self.raw(before, start)))
            elif token.kind is XmlTokenKind.END:
                limits.pop()
                found.append(_Inline(self.raw(before, start), Role.CLOSE, partner=opened.pop()))
            elif token.kind is XmlTokenKind.START and self._around(before):
                limits.append(self.closings[before])
                opened.append(_Inline(self.raw(before, start), Role.OPEN))
                found.append(opened[-1])
            elif token.opens:
                start = self._behind(before, limits[-1])
                found.append(self._whole(before, start))
        return found

    def _around(self, index: int) -> bool:
        attributes = self.found[index].attributes
        kept = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
        return self.name(index) in AROUND and not kept

    def _behind(self, index: int, end: int) -> int:
        """Return the index after the code: after its element, or after the <em> that matches <sm translate="no"/>."""
        token = self.found[index]
        if self.name(index) == "sm" and token.attributes.get("translate") == "no":
            ends = self._ends.get(token.attributes.get("id", ""), [])
            after = bisect_right(ends, index)
            if after < len(ends) and ends[after] < end and self.found[ends[after]].depth == token.depth:
                return self.closings[ends[after]] + 1
        return self.closings[index] + 1

    @cached_property
    def _ends(self) -> dict[str, list[int]]:
        """Indices of <em> elements by the name of their <sm>."""
        ends: dict[str, list[int]] = {}
        for index, token in enumerate(self.found):
            if token.opens and self.name(index) == "em":
                ends.setdefault(token.attributes.get("startRef", ""), []).append(index)
        return ends

    def _whole(self, start: int, end: int) -> _Inline:
        name, attributes = self.name(start), self.found[start].attributes
        raw = self.raw(start, end)
        if name in AROUND or (name == "sm" and end > self.closings[start] + 1):
            return _Inline(raw, shown=self.words(start, end))
        if name in _STARTS:
            return _Inline(raw, Role.OPEN, (name, attributes.get(_STARTS[name]) or attributes.get("id", "")))
        if name in _ENDS:
            return _Inline(raw, Role.CLOSE, (_HALVES[name], attributes.get(_ENDS[name]) or attributes.get("id", "")))
        named = _NAMED.fullmatch(attributes.get("id", "")) if name == "x" else None
        if named:
            return _Inline(raw, Role.OPEN if named[1] == "START" else Role.CLOSE, ("x", named[2]))
        return _Inline(raw, shown=_shown(attributes))


def _shown(attributes: Mapping[str, str]) -> str:
    if attributes.get("ctype") == "lb" or attributes.get("subType") == "xlf:lb":
        return "\n"
    text = attributes.get("equiv-text") or attributes.get("equiv") or attributes.get("disp") or ""
    return "" if text.startswith("<") else text


def _paired(found: list[str | _Inline]) -> list[str | _Inline]:
    """Pair halves that nest; others become standalone. Pairs never cross the border of an element."""
    opened: list[list[_Inline]] = [[]]  # open halves inside of each open element
    counts: list[Counter[tuple[str, str]]] = [Counter()]
    for inline in found:
        if isinstance(inline, str) or inline.role is Role.ALONE:
            continue
        if inline.key is None:
            _bordered(inline, opened, counts)
        elif inline.role is Role.OPEN:
            opened[-1].append(inline)
            counts[-1][inline.key] += 1
        elif counts[-1][inline.key]:
            inline.partner = _popped(inline.key, opened[-1], counts[-1])
        else:
            inline.role = Role.ALONE
    _alone(opened[-1])
    return found


def _bordered(inline: _Inline, opened: list[list[_Inline]], counts: list[Counter[tuple[str, str]]]) -> None:
    if inline.role is Role.OPEN:
        opened.append([])
        counts.append(Counter())
    else:
        _alone(opened.pop())
        counts.pop()


def _popped(key: tuple[str, str], opened: list[_Inline], counts: Counter[tuple[str, str]]) -> _Inline:
    while True:
        inline = opened.pop()
        counts[inline.key or key] -= 1
        if inline.key == key:
            return inline
        inline.role = Role.ALONE


def _alone(halves: list[_Inline]) -> None:
    for inline in halves:
        inline.role = Role.ALONE


def _coded(found: list[str | _Inline]) -> tuple[Piece, ...]:
    pairs: dict[int, int] = {}
    pieces: list[Piece] = []
    for inline in found:
        if isinstance(inline, str):
            pieces.append(inline)
            continue
        pair = pairs.setdefault(id(inline.partner or inline), len(pairs))
        pieces.append(Code(inline.raw, inline.role, pair, inline.shown))
    return joined(pieces)


def written(pieces: Sequence[Piece], *, cdata: bool = False) -> str:
    """Write pieces as the content of an element, text in CDATA sections where requested and possible.

    Raises:
        DocumentError: XML cannot represent a character.
    """
    return "".join(piece.raw if isinstance(piece, Code) else _written(piece, cdata) for piece in pieces)


def _written(text: str, cdata: bool) -> str:
    escaped = written_text(text)  # also checks the characters
    if not cdata or "\r" in text:
        return escaped
    return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"
