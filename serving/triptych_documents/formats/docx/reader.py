"""DOCX reader (ECMA-376, Office Open XML: packages, part 2; WordprocessingML, part 1, 11 and 17).

Translates the paragraphs of the main document, headers, footers, footnotes, endnotes and comments, including tables and text
boxes; diagrams and chart titles; and the document's title and subject.
"""

import posixpath
from collections.abc import Container, Iterator
from urllib.parse import unquote

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.docx.runs import DocxParagraphs, Fields, code_styles, escape_for
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.inline import Atom, Escape, Style
from triptych_documents.formats.office.languages import OfficeLanguage, office_language
from triptych_documents.formats.office.parts import Tree, XmlPart, ZippedDocument, described, opened, signatures
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.formats.shared.xml import namespaces, prefix, with_attribute, written_text
from triptych_documents.unit import Role

_TYPES = "[Content_Types].xml"
_ROOT = "_rels/.rels"
_DRAWN = ("chart", "diagramData", "diagramDrawing")  # last parts of relationship types
_STORIES = ("footnotes", "endnotes", "comments", "header", "footer", *_DRAWN)
_MAIN = "wordprocessingml.document.main+xml"
_PARAGRAPH = {"w:p", "mc:Choice", "mc:Fallback"}  # alternatives may have runs of their own
_DELETED = {"w:del", "w:moveFrom"}  # tracked deletions
_DRAWING_PROPERTIES = {"a:pPr", "a:endParaRPr"}
_UNSEEN = {"lang", "altLang", "dirty", "err", "smtClean", "noProof", "bmk", "kern"}  # attributes of drawn runs


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    archive, bound = Archive(data), UnitLimit(options)
    relations = list(_relations(archive, ""))
    main = next((target for kind, target in relations if kind == "officeDocument"), "word/document.xml")
    _check_type(archive, main)
    target = office_language(options.target_language)
    known = {name: kind for kind, name in _relations(archive, main) if name in archive.names}
    code = _code_styles(archive, next((name for name, kind in known.items() if kind == "styles"), ""))
    stories = {name: kind for name, kind in known.items() if kind in _STORIES}
    names = [main, *sorted(stories, key=lambda name: _STORIES.index(stories[name]))]
    parts = []
    for name in dict.fromkeys(names):
        part = opened(archive, name, bound)
        parts.append(_drawn(part, target) if stories.get(name) in _DRAWN else _story(part, target, code))
    core = next((name for kind, name in relations if kind == "core-properties"), "")
    return ZippedDocument(archive, parts + described(archive, core, bound), signatures(archive, "_xmlsignatures/"))


def _code_styles(archive: Archive, name: str) -> frozenset[str]:
    """Return the styles for code; none if the member with the styles is missing or damaged, because it is not essential."""
    try:
        return code_styles(opened(archive, name).tree)
    except DamagedDocumentError:
        return frozenset()


def _relations(archive: Archive, part: str) -> Iterator[tuple[str, str]]:
    """Yield a part's relationships inside of the package: last part of the type, and the member."""
    folder, name = posixpath.split(part)
    member = posixpath.join(folder, "_rels", f"{name}.rels") if part else _ROOT
    if member not in archive.names:
        return
    tree = opened(archive, member).tree
    for element in tree.children(tree.root()):
        attributes = tree.tokens[element].attributes
        if attributes.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, unquote(attributes.get("Target", ""))))
            yield attributes.get("Type", "").rpartition("/")[2], target.lstrip("/")


def _check_type(archive: Archive, main: str) -> None:
    if _TYPES not in archive.names or main not in archive.names:
        raise DamagedDocumentError("a zip archive, but not a Word document")
    tree = opened(archive, _TYPES).tree
    kinds = [tree.tokens[element].attributes for element in tree.children(tree.root())]
    named = (kind for kind in kinds if kind.get("PartName", "").lower() == f"/{main}".lower())
    found = next(named, {}).get("ContentType", "")
    if found and not found.endswith(_MAIN):
        raise UnknownFormatError(f"document type {found!r} is not supported, only Word documents without macros (.docx)")


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


def _drawn(part: XmlPart, target: OfficeLanguage | None) -> XmlPart:
    """Read the paragraphs of a chart or a diagram."""
    tree = part.tree
    for paragraph in tree.found({"a:p"}):
        start, end = tree.inside(paragraph)
        for child in tree.children(paragraph):
            start = tree.span(child)[1] if tree.name(child) == "a:pPr" else start
            end = tree.span(child)[0] if tree.name(child) == "a:endParaRPr" else end
        part.add(start, end, list(_drawn_atoms(tree, paragraph, target)), _drawn_escape(prefix(tree.tag(paragraph))))
    return part


def _drawn_atoms(tree: Tree, paragraph: int, target: OfficeLanguage | None) -> Iterator[Atom]:
    for child in tree.children(paragraph):
        name = tree.name(child)
        if name == "a:r":
            style = _drawn_style(tree, child, target)
            texts = (part for part in tree.children(child) if tree.name(part) == "a:t")
            yield from (Atom(((style, *tree.span(text)),), None, tree.characters(text)) for text in texts)
        elif name not in _DRAWING_PROPERTIES:
            shown = "\n" if name == "a:br" else tree.characters(child)
            yield Atom(((None, *tree.span(child)),), Role.ALONE, shown, fixed=name == "a:br")


def _drawn_style(tree: Tree, run: int, target: OfficeLanguage | None) -> Style:
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


def _drawn_escape(start: str) -> Escape:
    """Return a function that writes text into runs whose elements have this prefix, such as "a:"."""
    return lambda text, _: f"<{start}t>{written_text(text)}</{start}t>"
