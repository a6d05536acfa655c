"""The paragraphs of WordprocessingML as atoms (ECMA-376, part 1, 17.3 and 17.16)."""

import re
from collections.abc import Iterator

from triptych_documents.formats.docx.fields import Fields, Mark, Step
from triptych_documents.formats.docx.names import short
from triptych_documents.formats.docx.styles import Styles
from triptych_documents.formats.office.atoms import SOFT_HYPHEN, Atom, Style
from triptych_documents.formats.office.parts import Tree
from triptych_documents.formats.office.runs import Escape
from triptych_documents.formats.shared.xml_events import XML, Kind
from triptych_documents.formats.shared.xml_text import written_text
from triptych_documents.unit import Role

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
