"""Content of XLIFF's <source> as pieces (XLIFF 1.2, section 2.4; XLIFF 2.1, section 4.7)."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag, coded
from triptych_documents.formats.shared.xml import XmlTokenKind, XmlTree, written_text
from triptych_documents.unit import Code, Piece, Role, joined

_NAMESPACE = "{urn:oasis:names:tc:xliff:document:"  # missing in 1.0 and in many files of later versions
AROUND = frozenset({"g", "mrk", "pc"})  # elements with translatable content
_STARTS = {"bpt": "rid", "bx": "rid", "sc": "id", "sm": "id"}  # opening half, and the attribute that names the pair
_ENDS = {"ept": "rid", "ex": "rid", "ec": "startRef", "em": "startRef"}
_HALVES = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}
_NAMED = re.compile(r"(START|CLOSE)_(.+?)(_\d+)?")  # <x id="START_LINK"/>, as Angular writes pairs


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
        return joined(coded([ScannedPart(content, 0, 0) for content in self._contents(start, end)]))

    def source(self, start: int, end: int) -> str:
        """Return tokens [start, end) as written."""
        return self.text[self.tokens[start].start : self.tokens[end].start]

    def _contents(self, start: int, end: int) -> Iterator[str | ScannedTag]:
        limits = [end]  # ends of the enclosing elements: codes end inside of them, and their numbers name their pairs
        while start < end:
            token = self.tokens[start]
            start, before = start + 1, start
            if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
                yield token.text
            elif token.kind is XmlTokenKind.REFERENCE:
                yield ScannedTag(self.source(before, start), Role.ALONE)
            elif token.kind is XmlTokenKind.END:
                yield ScannedTag(self.source(before, start), Role.CLOSE, str(limits.pop()))
            elif token.kind is XmlTokenKind.START and self._around(before):
                limits.append(self.end(before))
                yield ScannedTag(self.source(before, start), Role.OPEN, str(limits[-1]))
            elif token.opens:
                start = self._behind(before, limits[-1])
                yield self._whole(before, start, limits[-1])

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

    def _whole(self, start: int, end: int, limit: int) -> ScannedTag:
        """Return a code that ends before the token `end`; halves of a pair are named by it and by their `limit`."""
        name, attributes = self.name(start), self.tokens[start].attributes
        raw, ident = self.source(start, end), attributes.get("id", "")
        if name in AROUND or (name == "sm" and end > self.end(start) + 1):
            return ScannedTag(raw, Role.ALONE, shown="".join(token.text for token in self.tokens[start:end]))
        if name in _STARTS:
            return ScannedTag(raw, Role.OPEN, f"{limit} {name} {attributes.get(_STARTS[name]) or ident}")
        if name in _ENDS:
            return ScannedTag(raw, Role.CLOSE, f"{limit} {_HALVES[name]} {attributes.get(_ENDS[name]) or ident}")
        if name == "x" and (named := _NAMED.fullmatch(ident)):
            return ScannedTag(raw, Role.OPEN if named[1] == "START" else Role.CLOSE, f"{limit} x {named[2]}")
        return ScannedTag(raw, Role.ALONE, shown=_shown(attributes))


def _shown(attributes: Mapping[str, str]) -> str:
    if attributes.get("ctype") == "lb" or attributes.get("subType") == "xlf:lb":
        return "\n"
    text = attributes.get("equiv-text") or attributes.get("equiv") or attributes.get("disp") or ""
    return "" if text.startswith("<") else text


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
