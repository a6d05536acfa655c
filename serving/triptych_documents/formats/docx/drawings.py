"""Paragraphs of DrawingML as atoms: diagrams and chart titles (ECMA-376, part 1, 21.1.2)."""

from collections.abc import Iterator

from triptych_documents.formats.docx.styles import short
from triptych_documents.formats.office.atoms import Atom, Style
from triptych_documents.formats.office.inline import Escape
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.office.parts import Tree
from triptych_documents.formats.shared.xml import XmlTokenKind, prefix, with_attribute, written_text
from triptych_documents.unit import Role

_PROPERTIES = {"a:pPr", "a:endParaRPr"}
_UNSEEN = {"lang", "altLang", "dirty", "err", "smtClean", "noProof", "bmk", "kern"}


class Drawings:
    """Reads the paragraphs of a part."""

    def __init__(self, tree: Tree, target: OfficeLanguage | None) -> None:
        self._tree, self._target = tree, target

    def found(self) -> Iterator[int]:
        tokens = enumerate(self._tree.tokens)
        return (index for index, token in tokens if token.kind is XmlTokenKind.START and short(token.name) == "a:p")

    def content(self, paragraph: int) -> tuple[int, int]:
        """Return the span between the paragraph properties and the end properties."""
        start, end = self._tree.inside(paragraph)
        for child in self._tree.children(paragraph):
            name = self._name(child)
            start = self._tree.span(child)[1] if name == "a:pPr" else start
            end = self._tree.span(child)[0] if name == "a:endParaRPr" else end
        return start, end

    def atoms(self, paragraph: int) -> Iterator[Atom]:
        for child in self._tree.children(paragraph):
            name = self._name(child)
            if name == "a:r":
                yield from self._run(child)
            elif name not in _PROPERTIES:
                shown = "\n" if name == "a:br" else self._tree.characters(child)
                yield Atom(((None, *self._tree.span(child)),), Role.ALONE, shown, fixed=name == "a:br")

    def _name(self, element: int) -> str:
        return short(self._tree.tokens[element].name)

    def _run(self, run: int) -> Iterator[Atom]:
        properties = next((child for child in self._tree.children(run) if self._name(child) == "a:rPr"), None)
        style = self._style(run, properties)
        for child in self._tree.children(run):
            if self._name(child) == "a:t":
                yield Atom(((style, *self._tree.span(child)),), None, self._tree.characters(child))

    def _style(self, run: int, properties: int | None) -> Style:
        start = prefix(self._tree.tag(run))
        if properties is None:
            return Style("", f"<{start}r>", f"</{start}r>")
        attributes = self._tree.tokens[properties].attributes
        raw, tag = self._tree.raw(properties), self._tree.tag(properties)
        localized = with_attribute(tag, "lang", self._target.tag) if self._target else tag
        seen = " ".join(f"{name}={value}" for name, value in sorted(attributes.items()) if name not in _UNSEEN)
        inked = attributes.get("u", "none") != "none" or attributes.get("strike", "noStrike") != "noStrike"
        return Style(seen + raw[len(tag) :], f"<{start}r>{localized}{raw[len(tag) :]}", f"</{start}r>", inked)


def escape_for(start: str) -> Escape:
    """Return a function that writes text into runs whose elements have this prefix, such as "a:"."""
    return lambda text, _: f"<{start}t>{written_text(text)}</{start}t>"
