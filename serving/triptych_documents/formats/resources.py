"""Message files in XML: Android's string resources, .NET's .resx and Apple's .stringsdict. All but the texts stays.

Elements inside of texts are codes; `<xliff:g>` keeps its content. A translation has the plural forms of its source.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from triptych_documents.encoding import Encoding, reference
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.escapes import unescaped
from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag, coded, spaced, split_ends
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.text_document import Span, UnitLimit, collected
from triptych_documents.formats.shared.xml import XmlTokenKind, XmlTree, decoded, read_tree, written_text
from triptych_documents.formats.structured.keys import is_text
from triptych_documents.unit import Code, Piece, Role, Unit, joined

_KEPT = "{urn:oasis:names:tc:xliff:document:1.2}g"
_WRITTEN = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"})
_BARE_QUOTE = re.compile(r'(?<!\\)"')
_REFERENCE = re.compile(r"[@?](?:\+?[\w.]+:)?\w+/")  # to another resource: @string/name
_TEXT_KEYS = frozenset({"NSStringLocalizedFormatKey", "zero", "one", "two", "few", "many", "other"})  # of a .stringsdict

Found = Iterator[tuple[int, str]]  # elements with texts, and their names


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    lead: str
    tail: str
    cdata: bool
    escapes: bool  # Android's
    quote: str = ""  # around the text, so that white space is kept
    bare: bool = False  # quotation marks inside are not escaped

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        parts = [piece.raw if isinstance(piece, Code) else self._text(piece, not at) for at, piece in enumerate(pieces)]
        return encoding.escaped(f"{self.lead}{self.quote}{''.join(parts)}{self.quote}{self.tail}", reference)

    def _text(self, text: str, is_first: bool) -> str:
        if self.escapes:
            text = text.translate(_WRITTEN)
            text = text if self.bare else text.replace('"', '\\"')
            text = f"\\{text}" if is_first and text.startswith(("@", "?")) else text
        if self.cdata:
            return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"
        return written_text(text)


def _android(tree: XmlTree) -> Found:
    for element in tree.children(tree.root()):
        token = tree.tokens[element]
        name = token.attributes.get("name", "")
        if token.attributes.get("translatable") == "false":
            continue
        if token.name == "string":
            yield element, name
        elif token.name in ("plurals", "string-array"):
            for number, item in enumerate(tree.children(element)):
                yield item, f"{name}.{tree.tokens[item].attributes.get('quantity', number)}"


def _resx(tree: XmlTree) -> Found:
    for element in tree.children(tree.root()):
        attributes = tree.tokens[element].attributes
        name = attributes.get("name", "")
        if tree.tokens[element].name == "data" and not {"type", "mimetype"} & attributes.keys() and not name.startswith(">>"):
            yield from ((inner, name) for inner in tree.children(element) if tree.tokens[inner].name == "value")


def _stringsdict(tree: XmlTree) -> Found:
    names: dict[int, str] = {}  # last key by depth
    for element in tree.within(tree.root()):
        token = tree.tokens[element]
        if token.name == "key":
            names[token.depth] = tree.characters(element)
        elif token.name == "string" and names.get(token.depth) in _TEXT_KEYS:
            yield element, ".".join(names[depth] for depth in sorted(names) if depth <= token.depth)


def _read(data: bytes, options: ReadOptions, root: str, find: Callable[[XmlTree], Found], escapes: bool = False) -> Document:
    bound = UnitLimit(options)
    bound.check_marks(data, b"<")
    text, encoding = decoded(data)
    tree = read_tree(text, root)
    units = (
        (Unit(pieces, name, keeps_space=True), slot)
        for element, name in find(tree)
        for pieces, slot in _units(tree, element, escapes)
    )
    return with_messages(collected(text, encoding, units, bound), bound)


def _units(tree: XmlTree, element: int, escapes: bool) -> Iterator[tuple[tuple[Piece, ...], _Slot]]:
    lead, pieces, tail = split_ends(joined(coded(list(_parts(tree, element)))))
    inner = tree.tokens[element + 1 : tree.end(element)]
    cdata = {token.kind for token in inner if token.opens or token.text.strip()} == {XmlTokenKind.CDATA}
    slot = _Slot(tree.inside(element), lead, tail, cdata, escapes)
    if escapes:
        whole = "".join(piece for piece in pieces if isinstance(piece, str))
        if _REFERENCE.match(whole):
            return
        if len(pieces) == 1 and len(whole) > 1 and whole[0] == whole[-1] == '"':
            slot, pieces = replace(slot, quote='"'), (whole[1:-1],)
        else:
            slot = replace(slot, bare=_BARE_QUOTE.search(whole) is not None)
            pieces = tuple(spaced(piece) if isinstance(piece, str) else piece for piece in pieces)
        pieces = joined([unescaped(piece) if isinstance(piece, str) else piece for piece in pieces])
    if is_text("".join(piece if isinstance(piece, str) else " " for piece in pieces)):
        yield pieces, slot


def _parts(tree: XmlTree, element: int) -> Iterator[ScannedPart]:
    at, end = element + 1, tree.end(element)
    while at < end:
        token = tree.tokens[at]
        if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
            yield ScannedPart(token.text, 0, 0)
        elif token.opens and (token.name == _KEPT or token.kind is XmlTokenKind.EMPTY):
            yield ScannedPart(ScannedTag(tree.raw(at), Role.ALONE, shown=tree.characters(at)), 0, 0)
            at = tree.end(at)
        else:
            roles = {XmlTokenKind.START: Role.OPEN, XmlTokenKind.END: Role.CLOSE}
            tag = tree.text[token.start : token.end]
            yield ScannedPart(ScannedTag(tag, roles.get(token.kind, Role.ALONE), f"{token.name} {token.depth}"), 0, 0)
        at += 1


# See FormatInfo.read.
read_android = partial(_read, root="resources", find=_android, escapes=True)
read_resx = partial(_read, root="root", find=_resx)
read_stringsdict = partial(_read, root="plist", find=_stringsdict)
