"""DOCX reader (ECMA-376, Office Open XML: packages, part 2; WordprocessingML, part 1, 11 and 17).

Translates the paragraphs of the main document, headers, footers, footnotes, endnotes and comments, including tables and text
boxes; diagrams and chart titles; and the document's title and subject.
"""

from collections.abc import Container, Sequence

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.docx.runs import DocxParagraphs, Fields, code_styles, escape_for
from triptych_documents.formats.office.drawing import add_drawn
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.office.package import Package
from triptych_documents.formats.office.parts import XmlPart
from triptych_documents.formats.shared.xml import prefix

_KINDS = {f"openxmlformats-officedocument.wordprocessingml.{kind}" for kind in ("document", "template")}
_KINDS |= {"ms-word.document.macroEnabled", "ms-word.template.macroEnabledTemplate"}
_DRAWN = ("chart", "diagramData", "diagramDrawing")  # kinds of relationships
_STORIES = ("footnotes", "endnotes", "comments", "header", "footer", *_DRAWN)
_PARAGRAPH = {"w:p", "mc:Choice", "mc:Fallback"}  # alternatives may have runs of their own
_DELETED = {"w:del", "w:moveFrom"}  # tracked deletions


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    package = Package(data, options, "word/document.xml", _KINDS, "Word document")
    links = package.linked("styles", *_STORIES)
    code = _code_styles(package, [link.target for link in links if link.kind == "styles"])
    parts = [_story(package.opened(package.main), package.target, code)]
    for link in links:
        if link.kind == "styles":
            continue
        part = package.opened(link.target)
        parts.append(add_drawn(part, package.target) if link.kind in _DRAWN else _story(part, package.target, code))
    return package.document(parts)


def _code_styles(package: Package, names: Sequence[str]) -> frozenset[str]:
    """Return the styles for code; none if the member with the styles is missing or damaged, because it is not essential."""
    try:
        return code_styles(package.opened(names[0]).tree) if names else frozenset()
    except DamagedDocumentError:
        return frozenset()


def _story(part: XmlPart, target: OfficeLanguage | None, code: Container[str]) -> XmlPart:
    tree = part.tree
    paragraphs = DocxParagraphs(tree, target, code)
    stories: list[tuple[int, Fields]] = [(len(tree.tokens), Fields())]
    code_end = 0  # of the last paragraph in a style for code, whose alternatives are code, too
    for element in tree.found(_PARAGRAPH, _DELETED):
        while element >= stories[-1][0]:
            stories.pop()
        nested = tree.contains(element, _PARAGRAPH)
        run = next((inner for inner in tree.within(element) if tree.name(inner) == "w:r"), element)
        escape = escape_for(prefix(tree.tag(run)))
        atoms = paragraphs.atoms(element, stories[-1][1])
        if paragraphs.is_code(element):
            code_end = tree.end(element)
        elif element > code_end or tree.name(element) == "w:p":
            part.add(*paragraphs.content(element), atoms, escape, nested)
        if nested:
            stories.append((tree.end(element), Fields()))
    return part
