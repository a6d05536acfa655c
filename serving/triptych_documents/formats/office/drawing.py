"""Paragraphs of slides, drawings, charts and diagrams (DrawingML: ECMA-376, part 1, 21.1.2)."""

from collections.abc import Collection, Iterator

from triptych_documents.formats.office.inline import Atom, Escape, Style
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.office.parts import Tree, XmlPart
from triptych_documents.formats.shared.xml import namespaces, prefix, with_attribute, written_text
from triptych_documents.unit import Role

_PROPERTIES = {"a:pPr", "a:endParaRPr"}
_UNSEEN = {"lang", "altLang", "dirty", "err", "smtClean", "noProof", "bmk", "kern"}  # attributes of runs


def add_drawn(part: XmlPart, target: OfficeLanguage | None, kept: Collection[int] = ()) -> XmlPart:
    """Add the paragraphs of a part, except `kept`; runs get the language of the translation."""
    tree = part.tree
    for paragraph in tree.found({"a:p"}):
        start, end = tree.inside(paragraph)
        for child in tree.children(paragraph):
            start = tree.span(child)[1] if tree.name(child) == "a:pPr" else start
            end = tree.span(child)[0] if tree.name(child) == "a:endParaRPr" else end
        if paragraph not in kept:
            part.add(start, end, list(_atoms(tree, paragraph, target)), _escape(prefix(tree.tag(paragraph))))
    return part


def _atoms(tree: Tree, paragraph: int, target: OfficeLanguage | None) -> Iterator[Atom]:
    for child in tree.children(paragraph):
        name = tree.name(child)
        if name == "a:r":
            style = _style(tree, child, target)
            texts = (part for part in tree.children(child) if tree.name(part) == "a:t")
            yield from (Atom(((style, *tree.span(text)),), None, tree.characters(text)) for text in texts)
        elif name not in _PROPERTIES:
            shown = "\n" if name == "a:br" else tree.characters(child)
            yield Atom(((None, *tree.span(child)),), Role.ALONE, shown, fixed=name == "a:br")


def _style(tree: Tree, run: int, target: OfficeLanguage | None) -> Style:
    start, declared = prefix(tree.tag(run)), namespaces(tree.tag(run))
    properties = next((child for child in tree.children(run) if tree.name(child) == "a:rPr"), None)
    if properties is None:
        return Style("", f"<{start}r{declared}>", f"</{start}r>")
    attributes = tree.tokens[properties].attributes
    raw, tag = tree.raw(properties), tree.tag(properties)
    localized = with_attribute(tag, "lang", target.tag) if target else tag
    seen = " ".join(f"{name}={value}" for name, value in sorted(attributes.items()) if name not in _UNSEEN)
    inked = attributes.get("u", "none") != "none" or attributes.get("strike", "noStrike") != "noStrike"
    return Style(seen + raw[len(tag) :], f"<{start}r{declared}>{localized}{raw[len(tag) :]}", f"</{start}r>", inked)


def _escape(start: str) -> Escape:
    """Return a function that writes text into runs whose elements have this prefix, such as "a:"."""
    return lambda text, _: f"<{start}t>{written_text(text)}</{start}t>"
