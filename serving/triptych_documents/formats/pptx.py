"""PPTX reader (ECMA-376, Office Open XML: PresentationML, part 1, 13 and 19).

Translates the paragraphs of slides, with tables, charts and diagrams, of notes, comments, and of layouts and masters; title and
subject.
"""

from collections.abc import Collection

from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.office.drawing import add_drawn
from triptych_documents.formats.office.package import Package
from triptych_documents.formats.office.parts import Tree

_KINDS = {f"openxmlformats-officedocument.presentationml.{kind}" for kind in ("presentation", "slideshow", "template")}
_KINDS |= {f"ms-powerpoint.{kind}.macroEnabled" for kind in ("presentation", "slideshow", "template")}
_MASTERS = ("slideLayout", "slideMaster", "notesMaster", "handoutMaster")  # kinds of relationships
_PARTS = ("slide", "chart", "diagramData", "diagramDrawing", "notesSlide", "comments", *_MASTERS)


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    package = Package(data, options, "ppt/presentation.xml", _KINDS, "PowerPoint presentation")
    parts = []
    for link in package.linked(*_PARTS):
        part = package.opened(link.target)
        parts.append(add_drawn(part, package.target, _prompts(part.tree) if link.kind in _MASTERS else ()))
        for comment in part.tree.found({"p:text"}) if link.kind == "comments" else ():
            part.add_text(comment)
    return package.document(parts)


def _prompts(tree: Tree) -> Collection[int]:
    """Return what is inside of the placeholders of a layout or master, whose texts no slide shows ("Click to edit")."""
    return {inner for shape in tree.found({"p:sp"}) if tree.contains(shape, {"p:ph"}) for inner in tree.within(shape)}
