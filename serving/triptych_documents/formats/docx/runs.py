"""Paragraphs and fields of WordprocessingML as atoms (ECMA-376, part 1, 17.3 and 17.16).

A complex field is a sequence of marks in runs: begin, instruction, separate, result, end. Fields nest, and can span several
paragraphs, as a table of contents does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.docx.styles import DocxStyles, short
from triptych_documents.formats.office.atoms import SOFT_HYPHEN, Atom, Style, balanced, codes_only
from triptych_documents.formats.office.inline import Escape
from triptych_documents.formats.office.parts import Tree
from triptych_documents.formats.shared.xml import XML, written_text
from triptych_documents.unit import Role

MAX_DEPTH = 64  # nested fields

# Fields whose results are document text; others, such as page numbers, are generated.
_TEXTS = {"HYPERLINK", "TOC", "INDEX", "TOA", "QUOTE", "FORMTEXT", "INCLUDETEXT"}


class FieldMark(Enum):
    BEGIN = "begin"
    INSTRUCTION = "instruction"
    SEPARATE = "separate"
    END = "end"


@dataclass(frozen=True, slots=True)
class FieldStep:
    """An atom and its role in a field."""

    atom: Atom
    mark: FieldMark | None = None
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

    @staticmethod
    def is_text(instruction: str) -> bool:
        """Return whether the result of such a field is translated."""
        return (instruction.split(None, 1) or [""])[0].upper() in _TEXTS

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
        if step.mark is FieldMark.BEGIN:
            if len(self._open) >= MAX_DEPTH:
                raise DamagedDocumentError(f"fields nest deeper than {MAX_DEPTH}")
            self._number += 1
            self._open.append(_Open(self._number))
        here = self._open[-1] if self._open else None
        (out if here is None else here.atoms).append(step.atom)
        if here is None:
            return
        if step.mark is FieldMark.INSTRUCTION:
            here.instruction += step.instruction
        elif step.mark is FieldMark.SEPARATE and here.separated is None:
            here.separated = len(here.atoms)
        elif step.mark is FieldMark.END:
            self._open.pop()
            (self._open[-1].atoms if self._open else out).extend(_closed(here))


def _closed(one: _Open) -> Sequence[Atom]:
    if one.inherited or not balanced(one.atoms):
        return _flat(one)
    if one.separated is None:
        return [codes_only(one.atoms, shown=False)]
    before, result = one.atoms[: one.separated], one.atoms[one.separated : -1]
    if not Fields.is_text(one.instruction) or not (balanced(before) and balanced(result)):
        shown = "".join(atom.text for atom in result)
        return [replace(codes_only(one.atoms), text=shown)]
    pair = ("field", one.number)
    first = replace(codes_only(before, shown=False), role=Role.OPEN, pair=pair, soft=True)
    return [first, *result, replace(one.atoms[-1], role=Role.CLOSE, pair=pair, soft=True)]


def _flat(one: _Open) -> list[Atom]:
    """Return the atoms of an incomplete field: everything before its result is code."""
    separated = len(one.atoms) if one.separated is None else one.separated
    before = [replace(atom, role=atom.role or Role.ALONE, text="", fixed=False) for atom in one.atoms[:separated]]
    return before + one.atoms[separated:]


_DROPPED = {"w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen"}
_UNTOUCHED = {"w:del", "w:moveFrom"}  # tracked deletions
_AROUND = {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:sdtContent", "w:dir", "w:bdo"}
_RANGES = {"w:bookmark", "w:commentRange", "w:perm", "w:moveFromRange", "w:moveToRange"}
_MARKS = {"begin": FieldMark.BEGIN, "separate": FieldMark.SEPARATE, "end": FieldMark.END}
_SHOWN = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n"}
_HYPHEN = "\u2011"  # non-breaking hyphen; Word has an element for it, as fonts may lack it
_PROPERTIES = {"w:pPr", "w:rPr", "w:smartTagPr", "w:customXmlPr", "w:sdtPr", "w:sdtEndPr", "w:rubyPr"}
_SPACE = " \t\r\n"
_LINE_END = re.compile(r"(?<![ \t])[ \t]*[\r\n]\s*")  # matches once per run of white space


class DocxParagraphs:
    """Reads the paragraphs of a part in order, because fields span several."""

    def __init__(self, tree: Tree, styles: DocxStyles) -> None:
        self._tree, self._styles = tree, styles
        self._cursor: str | None = None  # identifier of the bookmark of the last cursor position
        self._kept = tree.tokens[tree.root()].attributes.get(f"{XML}space") == "preserve"

    def found(self) -> Iterator[int]:
        """Find all paragraphs that are not deleted, nested ones after their enclosing paragraph."""
        return self._tree.found(lambda name: short(name) == "w:p", lambda name: short(name) in _UNTOUCHED)

    def content(self, paragraph: int) -> tuple[int, int]:
        """Return the span after the paragraph properties."""
        start, end = self._tree.inside(paragraph)
        first = next(self._tree.children(paragraph), None)
        if first is not None and self._name(first) == "w:pPr":
            start = self._tree.span(first)[1]
        return start, end

    def atoms(self, paragraph: int, fields: Fields) -> list[Atom]:
        """Return the content of a paragraph, with fields as codes."""
        return fields.folded(self._steps(paragraph))

    def nested(self, paragraph: int) -> bool:
        return any(self._name(element) == "w:p" for element in self._tree.within(paragraph))

    def _name(self, element: int) -> str:
        return short(self._tree.tokens[element].name)

    def _attribute(self, element: int, name: str) -> str:
        return next((value for key, value in self._tree.tokens[element].attributes.items() if short(key) == name), "")

    def _dropped(self, element: int, name: str) -> bool:
        """Return whether Word recreates the element."""
        if self._attribute(element, "w:name") == "_GoBack":  # last cursor position
            self._cursor = self._attribute(element, "w:id")
            return True
        return name in _DROPPED or (name == "w:bookmarkEnd" and self._attribute(element, "w:id") == self._cursor)

    def _steps(self, element: int) -> Iterator[FieldStep]:
        for child in self._tree.children(element):
            name = self._name(child)
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
        """Yield a pair, from an element's start to the start of its content, and from the end of its content."""
        (start, end), (inner, behind) = self._tree.span(outer), self._tree.inside(content)
        properties = [child for child in self._tree.children(content) if self._name(child) in _PROPERTIES]
        inner = max([inner, *(self._tree.span(child)[1] for child in properties)])
        yield FieldStep(Atom(((None, start, inner),), Role.OPEN, pair=outer))
        yield from self._steps(content)
        yield FieldStep(Atom(((None, behind, end),), Role.CLOSE, pair=outer))

    def _control(self, element: int) -> Iterator[FieldStep]:
        for child in self._tree.children(element):
            if self._name(child) == "w:sdtContent" and self._tree.end(child) != child:
                yield from self._element(element, child)
                return
        yield FieldStep(self._code(element))

    def _simple(self, element: int) -> Iterator[FieldStep]:
        instruction = self._attribute(element, "w:instr")
        if Fields.is_text(instruction) and self._tree.end(element) != element:
            yield from self._element(element, element)
            return
        shown = "".join(step.atom.text for step in self._steps(element))
        yield FieldStep(self._code(element, shown))

    def _range(self, element: int, name: str) -> FieldStep | None:
        for ending, role in (("Start", Role.OPEN), ("End", Role.CLOSE)):
            family = name.removesuffix(ending)
            if family != name and family in _RANGES:
                ident = self._attribute(element, "w:id")
                return FieldStep(Atom(((None, *self._tree.span(element)),), role, pair=(family, ident), soft=True))
        return None

    def _run(self, run: int) -> Iterator[FieldStep]:
        children = list(self._tree.children(run))
        properties = next((child for child in children if self._name(child) == "w:rPr"), None)
        style, hidden = self._styles.of(run, properties), self._styles.hidden(properties)
        for child in children:
            name = self._name(child)
            if name == "w:ruby":
                yield from self._ruby(child)
            elif name not in _DROPPED and name not in _PROPERTIES:
                yield self._in_run(child, name, style, hidden)

    def _in_run(self, element: int, name: str, style: Style, hidden: bool) -> FieldStep:
        if name == "w:fldChar":
            return FieldStep(self._code(element, style=style), _MARKS.get(self._attribute(element, "w:fldCharType")))
        if name in ("w:instrText", "w:delInstrText"):
            return FieldStep(self._code(element, style=style), FieldMark.INSTRUCTION, self._tree.characters(element))
        text = self._text(element) if name == "w:t" else _HYPHEN if name == "w:noBreakHyphen" else ""
        if hidden or not (text or name == "w:t"):
            shown = "" if hidden else _SHOWN.get(name, "")
            return FieldStep(self._code(element, shown, style, fixed=bool(shown)))
        return FieldStep(Atom(((style, *self._tree.span(element)),), None, text))

    def _text(self, element: int) -> str:
        text = _LINE_END.sub(" ", self._tree.characters(element)).replace(SOFT_HYPHEN, "")
        kept = self._tree.tokens[element].attributes.get(f"{XML}space")
        return text if kept == "preserve" or (kept is None and self._kept) else text.strip(_SPACE)

    def _ruby(self, element: int) -> Iterator[FieldStep]:
        """Yield the base text; the readings above it belong to the source language and are dropped."""
        for child in self._tree.children(element):
            if self._name(child) == "w:rubyBase":
                yield from self._steps(child)


def escape_for(start: str) -> Escape:
    """Return a function that writes text into runs whose elements have this prefix, such as "w:"."""

    def escape(text: str, _: bool) -> str:
        return f"<{start}noBreakHyphen/>".join(map(whole, _LINE_END.sub(" ", text).split(_HYPHEN)))

    def whole(text: str) -> str:
        if not text:
            return ""
        kept = ' xml:space="preserve"' if text != text.strip() or "  " in text else ""
        return f"<{start}t{kept}>{written_text(text)}</{start}t>"

    return escape
