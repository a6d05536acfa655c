"""Names and run styles of WordprocessingML (ECMA-376, Office Open XML, transitional and strict)."""

from collections.abc import Mapping

from triptych_documents.formats.office.atoms import Style
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.office.parts import Tree
from triptych_documents.formats.shared.xml import prefix, with_attribute

_WORD = ("{http://schemas.openxmlformats.org/wordprocessingml/2006/main}", "{http://purl.oclc.org/ooxml/wordprocessingml/main}")
_MATH = ("{http://schemas.openxmlformats.org/officeDocument/2006/math}", "{http://purl.oclc.org/ooxml/officeDocument/math}")
_DRAWING = ("{http://schemas.openxmlformats.org/drawingml/2006/main}", "{http://purl.oclc.org/ooxml/drawingml/main}")

_PREFIXES = (("w", _WORD), ("m", _MATH), ("a", _DRAWING))
_SHORT = {namespace: prefix for prefix, namespaces in _PREFIXES for namespace in namespaces}


def short(name: str) -> str:
    """Return `w:p` for names of WordprocessingML, `m:` for mathematics, `a:` for drawings; other names unchanged."""
    namespace, closed, local = name.rpartition("}")
    prefix = _SHORT.get(namespace + closed)
    return f"{prefix}:{local}" if prefix else name


# Languages, properties of other scripts, and change records do not affect the appearance of a run.
_UNSEEN = {
    "w:lang",
    "w:noProof",
    "w:bCs",
    "w:iCs",
    "w:szCs",
    "w:kern",
    "w:rPrChange",
    "w:ins",
    "w:del",
    "w:moveFrom",
    "w:moveTo",
}
_INKED = {"w:u", "w:strike", "w:dstrike", "w:highlight", "w:shd", "w:bdr", "w:effect", "w:em"}
_BEHIND_LANGUAGE = {"w:eastAsianLayout", "w:specVanish", "w:oMath", "w:rPrChange"}  # follow it in the schema's order
_TRUE = {"", "1", "true", "on"}
_ATTRIBUTES = {"western": "val", "asian": "eastAsia", "complex": "bidi"}
_FINE = 10  # twentieths of a point: smaller letter spacing comes from justified lines of converted documents


class DocxStyles:
    """Styles of the runs of a part, with the language of the translation; None keeps their languages."""

    def __init__(self, tree: Tree, target: OfficeLanguage | None) -> None:
        self._tree, self._target = tree, target
        self._known: dict[tuple[str, str], Style] = {}

    def of(self, run: int, properties: int | None) -> Style:
        start = prefix(self._tree.tag(run))
        raw = "" if properties is None else self._tree.raw(properties)
        known = self._known.get((start, raw))
        if known is None:
            known = self._known[start, raw] = self._made(start, properties)
        return known

    def hidden(self, properties: int | None) -> bool:
        tokens = (self._tree.tokens[child] for child in (() if properties is None else self._tree.children(properties)))
        return any(short(token.name) == "w:vanish" and _value(token.attributes).lower() in _TRUE for token in tokens)

    def _made(self, start: str, properties: int | None) -> Style:
        children = [] if properties is None else list(self._tree.children(properties))
        names = [short(self._tree.tokens[child].name) for child in children]
        keys = [key for child, name in zip(children, names, strict=True) if (key := self._key(child, name))]
        inner = self._with_language(start, children, names)
        opening = f"<{start}r><{start}rPr>{inner}</{start}rPr>" if inner else f"<{start}r>"
        return Style("".join(sorted(keys)), opening, f"</{start}r>", not _INKED.isdisjoint(names))

    def _key(self, child: int, name: str) -> str:
        attributes = self._tree.tokens[child].attributes
        values = {short(key): value for key, value in attributes.items() if short(key) != "w:hint"}
        if name in _UNSEEN or (name == "w:rFonts" and not values) or (name == "w:spacing" and _fine(attributes)):
            return ""
        if len(values) == 1 and _value(values).lower() in _TRUE:
            values = {}
        inner = "".join(self._key(one, short(self._tree.tokens[one].name)) for one in self._tree.children(child))
        return f"<{name} {sorted(values.items())} {inner}>" if values or inner else f"<{name}>"

    def _with_language(self, start: str, children: list[int], names: list[str]) -> str:
        raws = [self._tree.raw(child) for child in children]
        if self._target is None or not start:
            return "".join(raws)
        attribute = start + _ATTRIBUTES[self._target.script]
        if "w:lang" in names:
            at = names.index("w:lang")
            raws[at] = with_attribute(raws[at].partition(">")[0].rstrip("/") + "/>", attribute, self._target.tag)
            return "".join(raws)
        at = next((index for index, name in enumerate(names) if name in _BEHIND_LANGUAGE), len(names))
        return "".join((*raws[:at], f'<{start}lang {attribute}="{self._target.tag}"/>', *raws[at:]))


def _value(attributes: Mapping[str, str]) -> str:
    return next((value for name, value in attributes.items() if short(name) == "w:val"), "")


def _fine(attributes: Mapping[str, str]) -> bool:
    value = _value(attributes).removeprefix("-")
    return value.isdecimal() and int(value) <= _FINE
