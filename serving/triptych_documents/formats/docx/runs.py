"""Fields of WordprocessingML (ECMA-376, part 1, 17.16): instructions that are not text, and results that may be.

A complex field is a row of marks in runs: begin, instruction, separate, result, end. Fields stand inside of fields, and reach
over paragraphs: a table of contents does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.docx.styles import Styles, short
from triptych_documents.formats.office.atoms import SOFT_HYPHEN, Atom, Style, balanced, codes_only
from triptych_documents.formats.office.inline import Escape
from triptych_documents.formats.office.parts import Tree
from triptych_documents.formats.shared.xml import XML, Kind, written_text
from triptych_documents.unit import Role

MAX_DEPTH = 64  # fields inside each other

# Results of these are text of the document; others are made anew from elsewhere, such as page numbers.
_TEXTS = {"HYPERLINK", "TOC", "INDEX", "TOA", "QUOTE", "FORMTEXT", "INCLUDETEXT"}


class Mark(Enum):
    """A part of a field."""

    BEGIN = "begin"
    INSTRUCTION = "instruction"
    SEPARATE = "separate"
    END = "end"


@dataclass(frozen=True, slots=True)
class Step:
    """An atom, and what it is in a field."""

    atom: Atom
    mark: Mark | None = None
    instruction: str = ""


@dataclass
class _Open:
    """A field whose end has not come."""

    number: int
    atoms: list[Atom] = field(default_factory=list)
    instruction: str = ""
    separated: int | None = None  # atoms up to the result
    inherited: bool = False  # begins in an earlier paragraph


class Fields:
    """Those of a story: paragraphs that follow each other."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._number = 0

    @staticmethod
    def is_text(instruction: str) -> bool:
        """The result of such a field is for translators."""
        return (instruction.split(None, 1) or [""])[0].upper() in _TEXTS

    def folded(self, steps: Iterable[Step]) -> list[Atom]:
        """A paragraph's atoms, with whole fields as one code each."""
        out: list[Atom] = []
        for step in steps:
            self._take(step, out)
        for one in self._open:
            out += _flat(one)
            one.atoms, one.inherited = [], True
            one.separated = None if one.separated is None else 0
        return out

    def _take(self, step: Step, out: list[Atom]) -> None:
        if step.mark is Mark.BEGIN:
            if len(self._open) >= MAX_DEPTH:
                raise DamagedDocumentError(f"fields nest deeper than {MAX_DEPTH}")
            self._number += 1
            self._open.append(_Open(self._number))
        here = self._open[-1] if self._open else None
        (out if here is None else here.atoms).append(step.atom)
        if here is None:
            return
        if step.mark is Mark.INSTRUCTION:
            here.instruction += step.instruction
        elif step.mark is Mark.SEPARATE and here.separated is None:
            here.separated = len(here.atoms)
        elif step.mark is Mark.END:
            self._open.pop()
            (self._open[-1].atoms if self._open else out).extend(_closed(here))


def _closed(one: _Open) -> Sequence[Atom]:
    """A field whose end is the last of its atoms."""
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
    """A part of a field that is not whole here: what is before its result is no text."""
    separated = len(one.atoms) if one.separated is None else one.separated
    return [_untouched(atom) for atom in one.atoms[:separated]] + one.atoms[separated:]


def _untouched(atom: Atom) -> Atom:
    return replace(atom, role=atom.role or Role.ALONE, text="", fixed=False)


_DROPPED = {"w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen"}
_UNTOUCHED = {"w:del", "w:moveFrom"}  # what is deleted, but may come back
_AROUND = {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:sdtContent", "w:dir", "w:bdo"}
_RANGES = {"w:bookmark", "w:commentRange", "w:perm", "w:moveFromRange", "w:moveToRange"}
_SHOWN = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n"}
_HYPHEN = "\u2011"  # that does not break; Word has an element for it, as fonts may lack it
_PROPERTIES = {"w:pPr", "w:rPr", "w:smartTagPr", "w:customXmlPr", "w:sdtPr", "w:sdtEndPr", "w:rubyPr"}
_SPACE = " \t\r\n"
_LINE_END = re.compile(r"(?<![ \t])[ \t]*[\r\n]\s*")  # begins once in a run of spaces


class Paragraphs:
    """Reads the paragraphs of a part, one behind the other: fields reach over several.

    Args:
        tree: the part.
        styles: of its runs.
    """

    def __init__(self, tree: Tree, styles: Styles) -> None:
        self._tree, self._styles = tree, styles
        self._cursor: str | None = None  # the identifier of the bookmark that says where it was
        self._kept = tree.tokens[tree.root()].attributes.get(f"{XML}space") == "preserve"

    def found(self) -> Iterator[int]:
        """All paragraphs, those inside of others behind these; not what is deleted."""
        index, tokens = 0, self._tree.tokens
        while index < len(tokens):
            name = short(tokens[index].name) if tokens[index].opens else ""
            if tokens[index].kind is Kind.START and name == "w:p":
                yield index
            index = self._tree.end(index) + 1 if name in _UNTOUCHED else index + 1

    def content(self, paragraph: int) -> tuple[int, int]:
        """The span behind its properties."""
        start, end = self._tree.inside(paragraph)
        first = next(self._tree.children(paragraph), None)
        if first is not None and self._name(first) == "w:pPr":
            start = self._tree.span(first)[1]
        return start, end

    def atoms(self, paragraph: int, fields: Fields) -> list[Atom]:
        """What is in it, with its fields as codes.

        Args:
            paragraph: its element.
            fields: those that are open before it; knows afterwards which are open behind it.
        """
        return fields.folded(self._steps(paragraph))

    def nested(self, paragraph: int) -> bool:
        """There are paragraphs inside of it."""
        return any(self._name(element) == "w:p" for element in self._tree.within(paragraph))

    def _name(self, element: int) -> str:
        return short(self._tree.tokens[element].name)

    def _attribute(self, element: int, name: str) -> str:
        return next((value for key, value in self._tree.tokens[element].attributes.items() if short(key) == name), "")

    def _dropped(self, element: int, name: str) -> bool:
        """Word makes it anew."""
        if self._attribute(element, "w:name") == "_GoBack":  # where the cursor was
            self._cursor = self._attribute(element, "w:id")
            return True
        return name in _DROPPED or (name == "w:bookmarkEnd" and self._attribute(element, "w:id") == self._cursor)

    def _steps(self, element: int) -> Iterator[Step]:
        for child in self._tree.children(element):
            name = self._name(child)
            if name == "w:r":
                yield from self._run(child)
            elif name == "w:fldSimple":
                yield from self._simple(child)
            elif name == "w:sdt":
                yield from self._control(child)
            elif name in _AROUND and self._tree.end(child) != child:
                yield from self._element(child, child)
            elif name not in _PROPERTIES and not self._dropped(child, name):
                yield self._range(child, name) or Step(self._code(child))

    def _code(self, element: int, shown: str = "", style: Style | None = None, fixed: bool = False) -> Atom:
        return Atom(((style, *self._tree.span(element)),), Role.ALONE, shown, fixed)

    def _element(self, outer: int, content: int) -> Iterator[Step]:
        """A pair, from an element's start to the start of its content, and from its end on."""
        (start, end), (inner, behind) = self._tree.span(outer), self._tree.inside(content)
        properties = [child for child in self._tree.children(content) if self._name(child) in _PROPERTIES]
        inner = max([inner, *(self._tree.span(child)[1] for child in properties)])
        yield Step(Atom(((None, start, inner),), Role.OPEN, pair=outer))
        yield from self._steps(content)
        yield Step(Atom(((None, behind, end),), Role.CLOSE, pair=outer))

    def _control(self, element: int) -> Iterator[Step]:
        for child in self._tree.children(element):
            if self._name(child) == "w:sdtContent" and self._tree.end(child) != child:
                yield from self._element(element, child)
                return
        yield Step(self._code(element))

    def _simple(self, element: int) -> Iterator[Step]:
        """A field in one element."""
        instruction = self._attribute(element, "w:instr")
        if Fields.is_text(instruction) and self._tree.end(element) != element:
            yield from self._element(element, element)
            return
        shown = "".join(step.atom.text for step in self._steps(element))
        yield Step(self._code(element, shown))

    def _range(self, element: int, name: str) -> Step | None:
        for ending, role in (("Start", Role.OPEN), ("End", Role.CLOSE)):
            family = name.removesuffix(ending)
            if family != name and family in _RANGES:
                ident = self._attribute(element, "w:id")
                return Step(Atom(((None, *self._tree.span(element)),), role, pair=(family, ident), soft=True))
        return None

    def _run(self, run: int) -> Iterator[Step]:
        children = list(self._tree.children(run))
        properties = next((child for child in children if self._name(child) == "w:rPr"), None)
        style, hidden = self._styles.of(run, properties), self._styles.hidden(properties)
        for child in children:
            name = self._name(child)
            if name == "w:ruby":
                yield from self._ruby(child)
            elif name not in _DROPPED and name not in _PROPERTIES:
                yield self._in_run(child, name, style, hidden)

    def _in_run(self, element: int, name: str, style: Style, hidden: bool) -> Step:
        if name == "w:fldChar":
            return Step(self._code(element, style=style), self._mark(element))
        if name in ("w:instrText", "w:delInstrText"):
            return Step(self._code(element, style=style), Mark.INSTRUCTION, self._tree.characters(element))
        text = self._text(element) if name == "w:t" else _HYPHEN if name == "w:noBreakHyphen" else ""
        if hidden or not (text or name == "w:t"):
            shown = "" if hidden else _SHOWN.get(name, "")
            return Step(self._code(element, shown, style, fixed=bool(shown)))
        return Step(Atom(((style, *self._tree.span(element)),), None, text))

    def _mark(self, element: int) -> Mark | None:
        marks = {"begin": Mark.BEGIN, "separate": Mark.SEPARATE, "end": Mark.END}
        return marks.get(self._attribute(element, "w:fldCharType"))

    def _text(self, element: int) -> str:
        text = _LINE_END.sub(" ", self._tree.characters(element)).replace(SOFT_HYPHEN, "")
        kept = self._tree.tokens[element].attributes.get(f"{XML}space")
        return text if kept == "preserve" or (kept is None and self._kept) else text.strip(_SPACE)

    def _ruby(self, element: int) -> Iterator[Step]:
        """The text that has readings written above it; the readings are of this language and go when the text does."""
        for child in self._tree.children(element):
            if self._name(child) == "w:rubyBase":
                yield from self._steps(child)


def escape_for(start: str) -> Escape:
    """Writes text into runs whose elements have this prefix, such as "w:"."""

    def escape(text: str, _: bool) -> str:
        return f"<{start}noBreakHyphen/>".join(map(whole, _LINE_END.sub(" ", text).split(_HYPHEN)))

    def whole(text: str) -> str:
        if not text:
            return ""
        kept = ' xml:space="preserve"' if text != text.strip() or "  " in text else ""
        return f"<{start}t{kept}>{written_text(text)}</{start}t>"

    return escape
