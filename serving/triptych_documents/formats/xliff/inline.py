"""Content of XLIFF's <source> as pieces (XLIFF 1.2, section 2.4; XLIFF 2.1, section 4.7)."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.shared.xml import XmlTokenKind, written_text
from triptych_documents.formats.shared.xml_tree import XmlTree
from triptych_documents.unit import Code, Piece, Role, joined

_NAMESPACE = "{urn:oasis:names:tc:xliff:document:"  # missing in 1.0 and in many files of later versions
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


class XliffTree(XmlTree):
    """Element tree of an XLIFF document. Raises DamagedDocumentError: not well-formed, or not XLIFF."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        root = self.tokens[self.root()]
        if root.name != "xliff" and not (root.name.startswith(_NAMESPACE) and root.name.endswith("}xliff")):
            raise DamagedDocumentError(f"not XLIFF: its root element is {root.name}", f"line {root.line}")
        self._namespace = root.name.removesuffix("xliff")  # in braces, or ""
        self.newer = root.attributes.get("version", "1.2").startswith("2")

    def name(self, index: int) -> str:
        """Return the local name of an XLIFF element; "" for others."""
        name = self.tokens[index].name
        return name[len(self._namespace) :] if name.startswith(self._namespace) else ""

    def pieces(self, start: int, end: int) -> tuple[Piece, ...]:
        """Return the pieces of tokens [start, end) without comments and instructions."""
        return _coded(_paired(self._inlines(start, end)))

    def source(self, start: int, end: int) -> str:
        """Return tokens [start, end) as written."""
        return self.text[self.tokens[start].start : self.tokens[end].start]

    def _inlines(self, start: int, end: int) -> list[str | _Inline]:
        found: list[str | _Inline] = []
        opened: list[_Inline] = []
        limits = [end]  # codes end inside of the enclosing element
        while start < end:
            token = self.tokens[start]
            start, before = start + 1, start
            if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
                found.append(token.text)
            elif token.kind is XmlTokenKind.REFERENCE:
                found.append(_Inline(self.source(before, start)))
            elif token.kind is XmlTokenKind.END:
                limits.pop()
                found.append(_Inline(self.source(before, start), Role.CLOSE, partner=opened.pop()))
            elif token.kind is XmlTokenKind.START and self._around(before):
                limits.append(self.end(before))
                opened.append(_Inline(self.source(before, start), Role.OPEN))
                found.append(opened[-1])
            elif token.opens:
                start = self._behind(before, limits[-1])
                found.append(self._whole(before, start))
        return found

    def _around(self, index: int) -> bool:
        attributes = self.tokens[index].attributes
        kept = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
        return self.name(index) in AROUND and not kept

    def _behind(self, index: int, end: int) -> int:
        """Return the index after the code: after its element, or after the <em> that matches <sm translate="no"/>."""
        token = self.tokens[index]
        if self.name(index) == "sm" and token.attributes.get("translate") == "no":
            ends = self._mark_ends.get(token.attributes.get("id", ""), [])
            after = bisect_right(ends, index)
            if after < len(ends) and ends[after] < end and self.tokens[ends[after]].depth == token.depth:
                return self.end(ends[after]) + 1
        return self.end(index) + 1

    @cached_property
    def _mark_ends(self) -> dict[str, list[int]]:
        """Indices of <em> elements by the name of their <sm>."""
        ends: dict[str, list[int]] = {}
        for index, token in enumerate(self.tokens):
            if token.opens and self.name(index) == "em":
                ends.setdefault(token.attributes.get("startRef", ""), []).append(index)
        return ends

    def _whole(self, start: int, end: int) -> _Inline:
        name, attributes = self.name(start), self.tokens[start].attributes
        raw = self.source(start, end)
        if name in AROUND or (name == "sm" and end > self.end(start) + 1):
            return _Inline(raw, shown="".join(token.text for token in self.tokens[start:end]))
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
        if inline.key is None and inline.role is Role.OPEN:
            opened.append([])
            counts.append(Counter())
        elif inline.key is None:
            _make_alone(opened.pop())
            counts.pop()
        elif inline.role is Role.OPEN:
            opened[-1].append(inline)
            counts[-1][inline.key] += 1
        elif counts[-1][inline.key]:
            inline.partner = _popped(inline.key, opened[-1], counts[-1])
        else:
            inline.role = Role.ALONE
    _make_alone(opened[-1])
    return found


def _popped(key: tuple[str, str], opened: list[_Inline], counts: Counter[tuple[str, str]]) -> _Inline:
    while True:
        inline = opened.pop()
        counts[inline.key or key] -= 1
        if inline.key == key:
            return inline
        inline.role = Role.ALONE


def _make_alone(halves: list[_Inline]) -> None:
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
    parts = []
    for piece in pieces:
        text = piece.raw if isinstance(piece, Code) else written_text(piece)  # also checks the characters
        if isinstance(piece, str) and cdata and "\r" not in piece:
            text = "<![CDATA[" + piece.replace("]]>", "]]]]><![CDATA[>") + "]]>"
        parts.append(text)
    return "".join(parts)
