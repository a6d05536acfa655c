"""Paragraphs, fields and run styles of WordprocessingML as atoms (ECMA-376, part 1, 17.3 and 17.16).

A complex field is a sequence of marks in runs: begin, instruction, separate, result, end. Fields nest, and can span several
paragraphs, as a table of contents does.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.office.inline import SOFT_HYPHEN, Atom, Escape, Style
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.office.parts import Tree, text_element, with_derived
from triptych_documents.formats.shared.xml import XML, namespaces, prefix, with_attribute
from triptych_documents.unit import Role, nests

MAX_DEPTH = 64  # nested fields

# Fields whose results are document text; others, such as page numbers, are generated.
_TEXTS = {"HYPERLINK", "TOC", "INDEX", "TOA", "QUOTE", "FORMTEXT", "INCLUDETEXT"}


@dataclass(frozen=True, slots=True)
class FieldStep:
    """An atom and its role in a field."""

    atom: Atom
    mark: str = ""  # "begin", "instruction", "separate" or "end"; "" if it is none
    instruction: str = ""


@dataclass
class _Open:
    """A field whose end has not been read."""

    number: int
    atoms: list[Atom] = field(default_factory=list)
    instruction: str = ""
    separated: int | None = None  # number of atoms before the result
    inherited: bool = False  # started in an earlier paragraph


class Fields:
    """Fields of a story: consecutive paragraphs."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._number = 0

    def folded(self, steps: Iterable[FieldStep]) -> list[Atom]:
        """Return a paragraph's atoms with each complete field as one code."""
        out: list[Atom] = []
        for step in steps:
            self._take(step, out)
        for one in self._open:
            out += _flat(one)
            one.atoms, one.inherited = [], True
            one.separated = None if one.separated is None else 0
        return out

    def _take(self, step: FieldStep, out: list[Atom]) -> None:
        if step.mark == "begin":
            if len(self._open) >= MAX_DEPTH:
                raise DamagedDocumentError(f"fields nest deeper than {MAX_DEPTH}")
            self._number += 1
            self._open.append(_Open(self._number))
        here = self._open[-1] if self._open else None
        (out if here is None else here.atoms).append(step.atom)
        if here is None:
            return
        if step.mark == "instruction":
            here.instruction += step.instruction
        elif step.mark == "separate" and here.separated is None:
            here.separated = len(here.atoms)
        elif step.mark == "end":
            self._open.pop()
            (self._open[-1].atoms if self._open else out).extend(_closed(here))


def _is_text(instruction: str) -> bool:
    """Return whether the result of such a field is translated."""
    return (instruction.split(None, 1) or [""])[0].upper() in _TEXTS


def _closed(one: _Open) -> Sequence[Atom]:
    if one.inherited or not _balanced(one.atoms):
        return _flat(one)
    if one.separated is None:
        return [_as_code(one.atoms)]
    before, result = one.atoms[: one.separated], one.atoms[one.separated : -1]
    if not _is_text(one.instruction) or not (_balanced(before) and _balanced(result)):
        return [_as_code(one.atoms, "".join(atom.text for atom in result))]
    pair = ("field", one.number)
    first = replace(_as_code(before), role=Role.OPEN, pair=pair, soft=True)
    return [first, *result, replace(one.atoms[-1], role=Role.CLOSE, pair=pair, soft=True)]


def _as_code(atoms: Sequence[Atom], shown: str = "") -> Atom:
    return Atom(tuple(fragment for atom in atoms for fragment in atom.fragments), Role.ALONE, shown)


def _balanced(atoms: Sequence[Atom]) -> bool:
    """Return whether all elements that open here also close here."""
    return nests((atom.role, atom.pair) for atom in atoms if not atom.soft)


def _flat(one: _Open) -> list[Atom]:
    """Return the atoms of an incomplete field: everything before its result is code."""
    separated = len(one.atoms) if one.separated is None else one.separated
    before = [replace(atom, role=atom.role or Role.ALONE, text="", fixed=False) for atom in one.atoms[:separated]]
    return before + one.atoms[separated:]


# Languages, properties of other scripts, and change records do not affect the appearance of a run.
_UNSEEN = {"w:lang", "w:noProof", "w:bCs", "w:iCs", "w:szCs", "w:kern"}
_UNSEEN |= {"w:rPrChange", "w:ins", "w:del", "w:moveFrom", "w:moveTo"}
_INKED = {"w:u", "w:strike", "w:dstrike", "w:highlight", "w:shd", "w:bdr", "w:effect", "w:em"}
_BEHIND_LANGUAGE = {"w:eastAsianLayout", "w:specVanish", "w:oMath", "w:rPrChange"}  # follow it in the schema's order
_TRUE = {"", "1", "true", "on"}
_ATTRIBUTES = {"western": "val", "asian": "eastAsia", "complex": "bidi"}
_FINE = 10  # twentieths of a point: smaller letter spacing comes from justified lines of converted documents


# Names of Word's and pandoc's styles for code, in lower case; identifiers can be in the author's language (HTMLVorformatiert).
_CODE = {*(f"html {kind}" for kind in ("code", "keyboard", "preformatted", "sample", "typewriter", "variable"))}
_CODE |= {"source code", "verbatim char"}


def code_styles(tree: Tree) -> frozenset[str]:
    """Return the identifiers of the styles for code, and of those that are based on them."""
    found, based = set[str](), dict[str, str]()
    for style in tree.children(tree.root()):
        ident = tree.attributes(style).get("w:styleId", "")
        values = {tree.name(child): _value(tree.attributes(child)) for child in tree.children(style)}
        based[ident] = values.get("w:basedOn", "")
        if values.get("w:name", "").lower() in _CODE:
            found.add(ident)
    return with_derived(found, based)


class DocxStyles:
    """Styles of the runs of a part, with the language of the translation; None keeps their languages."""

    def __init__(self, tree: Tree, target: OfficeLanguage | None) -> None:
        self._tree, self._target = tree, target
        self._known: dict[tuple[str, str], Style] = {}

    def of(self, run: int, properties: int | None) -> Style:
        tag = self._tree.tag(run)
        start, declared = prefix(tag), namespaces(tag)
        key = (f"{start}r{declared}", "" if properties is None else self._tree.raw(properties))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._made(start, declared, properties)
        return known

    def hidden(self, properties: int | None) -> bool:
        return any(value.lower() in _TRUE for value in self.values(properties, "w:vanish"))

    def values(self, properties: int | None, name: str) -> list[str]:
        """Return the values of the properties with this name."""
        children = () if properties is None else self._tree.children(properties)
        return [_value(self._tree.attributes(child)) for child in children if self._tree.name(child) == name]

    def _made(self, start: str, declared: str, properties: int | None) -> Style:
        children = [] if properties is None else list(self._tree.children(properties))
        names = [self._tree.name(child) for child in children]
        keys = [key for child, name in zip(children, names, strict=True) if (key := self._key(child, name))]
        inner = self._with_language(start, children, names)
        opening = f"<{start}r{declared}>"
        if inner:
            more = "" if properties is None else namespaces(self._tree.tag(properties))
            opening += f"<{start}rPr{more}>{inner}</{start}rPr>"
        return Style("".join(sorted(keys)), opening, f"</{start}r>", not _INKED.isdisjoint(names))

    def _key(self, child: int, name: str) -> str:
        values = {key: value for key, value in self._tree.attributes(child).items() if key != "w:hint"}
        if name in _UNSEEN or (name == "w:rFonts" and not values) or (name == "w:spacing" and _is_fine(values)):
            return ""
        if len(values) == 1 and _value(values).lower() in _TRUE:
            values = {}
        inner = "".join(self._key(one, self._tree.name(one)) for one in self._tree.children(child))
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
    return attributes.get("w:val", "")


def _is_fine(attributes: Mapping[str, str]) -> bool:
    value = _value(attributes).removeprefix("-")
    return value.isdecimal() and int(value) <= _FINE


_DROPPED = {"w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen"}
_AROUND = {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:sdtContent", "w:dir", "w:bdo"}
_RANGES = {"w:bookmark", "w:commentRange", "w:perm", "w:moveFromRange", "w:moveToRange"}
_FIELD = {"w:fldChar", "w:instrText", "w:delInstrText"}  # marks of complex fields
_SHOWN = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n"}
_HYPHEN = "\u2011"  # non-breaking hyphen; Word has an element for it, as fonts may lack it
_PROPERTIES = {"w:pPr", "w:rPr", "w:smartTagPr", "w:customXmlPr", "w:sdtPr", "w:sdtEndPr", "w:rubyPr"}
_SPACE = " \t\r\n"
_LINE_END = re.compile(r"(?<![ \t])[ \t]*[\r\n]\s*")  # matches once per run of white space


class DocxParagraphs:
    """Reads the paragraphs of a part in order, because fields span several."""

    def __init__(self, tree: Tree, target: OfficeLanguage | None, code: Container[str] = ()) -> None:
        self._tree, self._styles, self._code_styles = tree, DocxStyles(tree, target), code
        self._cursor: str | None = None  # identifier of the bookmark of the last cursor position
        self._kept = tree.tokens[tree.root()].attributes.get(f"{XML}space") == "preserve"

    def content(self, paragraph: int) -> tuple[int, int]:
        """Return the span after the paragraph properties."""
        start, end = self._tree.inside(paragraph)
        first = next(self._tree.children(paragraph), None)
        if first is not None and self._tree.name(first) == "w:pPr":
            start = self._tree.span(first)[1]
        return start, end

    def is_code(self, paragraph: int) -> bool:
        first = next(self._tree.children(paragraph), None)
        return first is not None and self._styled(first, "w:pStyle")

    def _styled(self, properties: int | None, name: str) -> bool:
        """Return whether properties name a style for code."""
        return any(value in self._code_styles for value in self._styles.values(properties, name))

    def atoms(self, paragraph: int, fields: Fields) -> list[Atom]:
        """Return the content of a paragraph, with fields as codes."""
        return fields.folded(self._steps(paragraph))

    def _dropped(self, element: int, name: str) -> bool:
        """Return whether Word recreates the element."""
        if self._tree.attributes(element).get("w:name", "") == "_GoBack":  # last cursor position
            self._cursor = self._tree.attributes(element).get("w:id", "")
            return True
        return name in _DROPPED or (name == "w:bookmarkEnd" and self._tree.attributes(element).get("w:id", "") == self._cursor)

    def _steps(self, element: int) -> Iterator[FieldStep]:
        for child in self._tree.children(element):
            name = self._tree.name(child)
            if name == "w:r":
                yield from self._run(child)
            elif name == "w:fldSimple":
                yield from self._simple(child)
            elif name == "w:ruby":
                yield from self._ruby(child)
            elif name == "w:sdt":
                yield from self._control(child)
            elif name in _AROUND and self._tree.end(child) != child:
                yield from self._element(child, child)
            elif name not in _PROPERTIES and not self._dropped(child, name):
                yield self._range(child, name) or FieldStep(self._code(child))

    def _code(self, element: int, shown: str = "", style: Style | None = None, fixed: bool = False) -> Atom:
        return Atom(((style, *self._tree.span(element)),), Role.ALONE, shown, fixed)

    def _element(self, outer: int, content: int) -> Iterator[FieldStep]:
        start, end = self._tree.pair(outer, content, _PROPERTIES)
        yield FieldStep(start)
        yield from self._steps(content)
        yield FieldStep(end)

    def _control(self, element: int) -> Iterator[FieldStep]:
        for child in self._tree.children(element):
            if self._tree.name(child) == "w:sdtContent" and self._tree.end(child) != child:
                yield from self._element(element, child)
                return
        yield FieldStep(self._code(element))

    def _simple(self, element: int) -> Iterator[FieldStep]:
        instruction = self._tree.attributes(element).get("w:instr", "")
        if _is_text(instruction) and self._tree.end(element) != element:
            yield from self._element(element, element)
            return
        shown = "".join(step.atom.text for step in self._steps(element))
        yield FieldStep(self._code(element, shown))

    def _range(self, element: int, name: str) -> FieldStep | None:
        for ending, role in (("Start", Role.OPEN), ("End", Role.CLOSE)):
            family = name.removesuffix(ending)
            if family != name and family in _RANGES:
                ident = self._tree.attributes(element).get("w:id", "")
                return FieldStep(Atom(((None, *self._tree.span(element)),), role, pair=(family, ident), soft=True))
        return None

    def _run(self, run: int) -> Iterator[FieldStep]:
        children = list(self._tree.children(run))
        properties = next((child for child in children if self._tree.name(child) == "w:rPr"), None)
        style, hidden = self._styles.of(run, properties), self._styles.hidden(properties)
        code = self._styled(properties, "w:rStyle")
        for child in children:
            name = self._tree.name(child)
            if name == "w:ruby":
                yield from self._ruby(child)
            elif name in _FIELD:
                # A run with nothing else stays whole: some programs expect each mark in a run of its own.
                whole = all(other in (child, properties) for other in children)
                yield self._mark(child, name, self._code(run) if whole else self._code(child, style=style))
            elif name not in _DROPPED and name not in _PROPERTIES:
                yield self._in_run(child, name, style, hidden, code)

    def _mark(self, element: int, name: str, atom: Atom) -> FieldStep:
        if name == "w:fldChar":
            return FieldStep(atom, self._tree.attributes(element).get("w:fldCharType", ""))
        return FieldStep(atom, "instruction", self._tree.characters(element))

    def _in_run(self, element: int, name: str, style: Style, hidden: bool, code: bool) -> FieldStep:
        text = self._text(element) if name == "w:t" else _HYPHEN if name == "w:noBreakHyphen" else ""
        if hidden or code or not (text or name == "w:t"):
            shown = "" if hidden else text or _SHOWN.get(name, "")
            return FieldStep(self._code(element, shown, style, fixed=bool(shown) and not text))
        return FieldStep(Atom(((style, *self._tree.span(element)),), None, text))

    def _text(self, element: int) -> str:
        text = _LINE_END.sub(" ", self._tree.characters(element)).replace(SOFT_HYPHEN, "")
        kept = self._tree.tokens[element].attributes.get(f"{XML}space")
        return text if kept == "preserve" or (kept is None and self._kept) else text.strip(_SPACE)

    def _ruby(self, element: int) -> Iterator[FieldStep]:
        """Yield the base text; the readings above it belong to the source language and are dropped."""
        for child in self._tree.children(element):
            if self._tree.name(child) == "w:rubyBase":
                yield from self._steps(child)


def escape_for(start: str) -> Escape:
    """Return a function that writes text into runs whose elements have this prefix, such as "w:"."""

    def escape(text: str, _: bool) -> str:
        return f"<{start}noBreakHyphen/>".join(map(whole, _LINE_END.sub(" ", text).split(_HYPHEN)))

    def whole(text: str) -> str:
        return text_element(start, text) if text else ""

    return escape
