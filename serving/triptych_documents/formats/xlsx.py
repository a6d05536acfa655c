"""XLSX reader (ECMA-376, Office Open XML: SpreadsheetML, part 1, 12 and 18).

Translates the texts of cells, comments, drawings and charts, data validation, headers and footers; title and subject. Texts
that formulas compute, and names of sheets and of the columns of tables stay: formulas refer to them.
"""

from collections.abc import Collection, Iterator

from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.office.drawing import add_drawn
from triptych_documents.formats.office.inline import PLAIN, Atom, Escape, Style
from triptych_documents.formats.office.package import Package
from triptych_documents.formats.office.parts import TextPart, Tree, XmlPart, parsed, text_element
from triptych_documents.formats.office.sheets import sheet_slots
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.formats.shared.xml import decoded, namespaces, prefix

_KINDS = {f"openxmlformats-officedocument.spreadsheetml.{kind}" for kind in ("sheet", "template")}
_KINDS |= {"ms-excel.sheet.macroEnabled", "ms-excel.template.macroEnabled"}
_SHEETS = ("worksheet", "chartsheet")  # kinds of relationships
_DRAWN = ("drawing", "chart", "diagramData", "diagramDrawing")
_TEXTS = {"x:si", "x:is", "x:text"}  # shared, in a cell, of a comment
_RETURN = "_x000D_"  # a carriage return before a line feed (part 1, 22.9.2.19), which the line feed alone replaces
_LINE_FEED = "_x000a_"  # in names of columns


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    package = Package(data, options, "xl/workbook.xml", _KINDS, "Excel workbook")
    links = package.linked("sharedStrings", *_SHEETS, "comments", *_DRAWN, "table")
    columns = {name for link in links if link.kind == "table" for name in _columns(package.opened(link.target).tree)}
    parts: list[TextPart] = []
    for link in links:
        if link.kind in _DRAWN:
            parts.append(add_drawn(package.opened(link.target), package.target))
        elif link.kind in ("sharedStrings", "comments", "worksheet"):
            data = package.archive.read(link.target)
            if link.kind == "worksheet" and b"is>" not in data:  # most have no texts in their cells, and many cells
                parts += _sheet(data, link.target, package.bound)
                continue
            part = parsed(data, link.target, package.bound)
            _add_texts(part, columns if link.kind != "comments" else ())
            if link.kind == "worksheet":
                part.places += sheet_slots(part.tree.text, link.target, package.bound)
            parts.append(part)
    return package.document(parts)


def _sheet(data: bytes, name: str, bound: UnitLimit) -> Iterator[TextPart]:
    if b"dataValidation " in data or b"headerFooter" in data:
        text, encoding = decoded(data)
        yield TextPart(name=name, encoding=encoding, text=text, places=sheet_slots(text, name, bound))


def _columns(table: Tree) -> Iterator[str]:
    for element in table.found({"x:tableColumns"}):
        yield from (table.attributes(column).get("name", "").replace(_LINE_FEED, "\n") for column in table.children(element))


def _add_texts(part: XmlPart, kept: Collection[str]) -> None:
    for element in part.tree.found(_TEXTS):
        start = prefix(part.tree.tag(element))
        atoms = list(_atoms(part.tree, element, start))
        if "".join(atom.text for atom in atoms) not in kept:
            part.add(*part.tree.inside(element), atoms, _escape(start))


def _atoms(tree: Tree, element: int, start: str) -> Iterator[Atom]:
    """Yield the texts, alone or in runs. Phonetic hints belong to the source language and are dropped."""
    for child in tree.children(element):
        if tree.name(child) == "x:r":
            style, texts = _style(tree, child, start), [inner for inner in tree.children(child) if tree.name(inner) == "x:t"]
        else:
            style, texts = PLAIN, [child] if tree.name(child) == "x:t" else []
        yield from (Atom(((style, *tree.span(text)),), None, tree.characters(text).replace(_RETURN, "")) for text in texts)


def _style(tree: Tree, run: int, start: str) -> Style:
    properties = "".join(tree.raw(child) for child in tree.children(run) if tree.name(child) == "x:rPr")
    inked = "<u" in properties or "strike" in properties
    return Style(f"r{properties}", f"<{start}r{namespaces(tree.tag(run))}>{properties}", f"</{start}r>", inked)


def _escape(start: str) -> Escape:
    """Return a function that writes text into elements with this prefix, "" as a rule."""
    return lambda text, _: text_element(start, text)
