"""Markdown: paragraphs, headings, items and cells with emphasis, links, code spans, images and HTML tags as codes.

CommonMark with extensions of GitHub and site generators (see `blocks`). Only changed stretches are written. The result is read
again: a translation that would change the document's structure is left out. HTML blocks are read as HTML, front matter as YAML.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from triptych_documents.encoding import Encoding, decode, reference
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.html import reader as html
from triptych_documents.formats.markdown.anchors import LINK, relinked
from triptych_documents.formats.markdown.blocks import FRONT, MarkdownBlocks, References, TextBlock, parsed
from triptych_documents.formats.markdown.text import TextSlot, signature
from triptych_documents.formats.shared.inline_codes import ScannedPart, core, pieces_of, soft
from triptych_documents.formats.shared.text_document import LineIndex, Span, UnitLimit, replaced
from triptych_documents.formats.structured import yaml
from triptych_documents.unit import Piece, Unit, changed

_HEAD = re.compile(r"(<[^<>\r\n]*>)(\r\n|\n|\r)")
_FRONT_KEYS = (  # of Hugo, Jekyll, Docusaurus, VitePress and others; the rest is names, addresses and settings
    *("**.title", "**.linkTitle", "**.subtitle", "**.description", "**.summary", "**.excerpt", "**.tagline", "**.details"),
    *("**.sidebar_label", "**.pagination_label", "**.sidebarTitle"),
)
_NARROW, _WIDTH = 60, 80  # columns: paragraphs narrower than the first are wrapped at the second
_UNPLACED = "the positions of its markup are unknown; not translated"
_UNWRITTEN = "the translation would change the markup; the source text was kept"


@dataclass(frozen=True, slots=True)
class Written:
    text: str
    pieces: Sequence[Sequence[Piece]]  # of each unit, as they must be read again


@dataclass(frozen=True, slots=True)
class EmbeddedSite:
    """An HTML block or front matter, which is a document inside of the document."""

    units: Sequence[Unit]
    document: Document
    read: Callable[[str], Document]
    span: Span
    head: str = ""  # a tag alone on the first line, which some tags need to start a block
    line_end: str = ""

    def written(self, translations: Mapping[int, Sequence[Piece]], encoding: Encoding) -> str:
        text = self.document.render(translations).decode()
        rest = text.removeprefix(self.head)
        if self.head and rest != text and rest.startswith(" "):
            text = self.head + self.line_end + rest.lstrip(" ")
        return encoding.escaped(text, reference)

    def expected(self, text: str, translations: Mapping[int, Sequence[Piece]]) -> Sequence[Sequence[Piece]]:
        """Return the pieces of each unit as they must be read again: of `text`, as tags contain translated attributes."""
        return [unit.pieces for unit in self.read(text).units]


@dataclass(frozen=True)
class MarkdownDocument:
    """A Markdown document after reading."""

    text: str
    encoding: Encoding
    blocks: MarkdownBlocks
    sites: Sequence[TextSlot | EmbeddedSite]  # stretches with units, in order
    unwritten: list[Finding] = field(default_factory=list)  # findings of the last `render`

    @cached_property
    def units(self) -> Sequence[Unit]:
        return [unit for site in self.sites for unit in site.units]

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings of paragraphs with unknown offsets, and of translations that could not be written."""
        lines = [content.line + 1 for content in self.blocks.contents if content.parts is None]
        unplaced = [Finding(FindingKind.FORMAT, Severity.WARNING, f"line {line}", _UNPLACED) for line in lines]
        return [*unplaced, *self.unwritten]

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        new = changed(self.units, translations)
        written: dict[int, Written] = {}
        changed_units: dict[int, list[Unit]] = {}  # changed units by site
        first = 0
        for number, site in enumerate(self.sites):
            mine = {index: new[first + index] for index in range(len(site.units)) if first + index in new}
            if mine:
                changed_units[number] = [site.units[index] for index in mine]
            text = site.written(mine, self.encoding) if mine else self.text[slice(*site.span)]
            if text != self.text[slice(*site.span)]:
                written[number] = Written(text, site.expected(text, mine))
            first += len(site.units)
        sound = self._sound(written)
        left = [unit.where for number, units in changed_units.items() if number not in sound for unit in units]
        self.unwritten[:] = [Finding(FindingKind.FORMAT, Severity.ERROR, where, _UNWRITTEN) for where in left]
        text = self._with(sound)
        if sound and LINK.search(text):
            text = relinked(text, self.blocks, parsed(text), self.encoding)
        return self.encoding.encode(text)

    def _with(self, written: Mapping[int, Written]) -> str:
        return replaced(self.text, [(self.sites[number].span, one.text) for number, one in written.items()])

    def _sound(self, written: dict[int, Written]) -> dict[int, Written]:
        """Return as many of them as keep the structure unchanged, found by bisection."""
        if not written or self._reads_as(written):
            return written
        if len(written) == 1:
            return {}
        places = list(written)
        left, right = places[: len(places) // 2], places[len(places) // 2 :]
        first = self._sound({number: written[number] for number in left})
        both = first | self._sound({number: written[number] for number in right})
        return both if self._reads_as(both) else first

    def _reads_as(self, written: Mapping[int, Written]) -> bool:
        again = _parsed(self._with(written), self.encoding)
        if again.blocks.skeleton != self.blocks.skeleton:
            return False
        own = [[unit.pieces for unit in site.units] for site in self.sites]
        expected = [written[number].pieces if number in written else pieces for number, pieces in enumerate(own)]
        wanted = [[signature(soft(pieces)) for pieces in site] for site in expected]
        return wanted == [[signature(soft(unit.pieces)) for unit in site.units] for site in again.sites]


def read(data: bytes, options: ReadOptions) -> MarkdownDocument:
    """See FormatInfo.read."""
    UnitLimit(options).check_marks(data, b"<", b"*", b"_", b"`", b"[", b"|", each=2, lines=2)
    return _parsed(*decode(data, options.encoding))


def _parsed(text: str, encoding: Encoding) -> MarkdownDocument:
    blocks, lines = parsed(text), LineIndex(text)
    sites: list[TextSlot | EmbeddedSite] = []
    for content in blocks.contents:
        parts = core(content.parts or ())
        if parts:
            where = lines.where(content.offsets[parts[0].start])
            sites.append(_slot(text, lines, content, parts, Unit(pieces_of(parts), where), blocks.references))
    if (front := FRONT.match(text)) and front[1]:
        sites += _front_matter(front, lines)
    for span in blocks.html:
        document = _html(text[slice(*span)])
        units = [replace(unit, where=lines.where(span[0])) for unit in document.units]
        head = _HEAD.match(text, *span)
        sites.append(EmbeddedSite(units, document, _html, span, head[1] if head else "", head[2] if head else ""))
    return MarkdownDocument(text, encoding, blocks, sorted(sites, key=lambda site: site.span))


def _html(text: str) -> Document:
    return html.read(text.encode(), ReadOptions(encoding="utf-8"))


def _yaml(text: str) -> Document:
    return yaml.read(text.encode(), ReadOptions(encoding="utf-8", keys=_FRONT_KEYS))


def _front_matter(front: re.Match[str], lines: LineIndex) -> Iterator[EmbeddedSite]:
    try:
        document = _yaml(front["body"])
    except DamagedDocumentError:  # no YAML, but a template
        return
    units = [replace(unit, where=f"{lines.where(0)}, {unit.where}") for unit in document.units]
    if units:
        yield EmbeddedSite(units, document, _yaml, front.span("body"))


def _slot(
    text: str, lines: LineIndex, content: TextBlock, parts: Sequence[ScannedPart], unit: Unit, references: References
) -> TextSlot:
    start, end = parts[0].start, parts[-1].end
    count = content.text.count("\n") + 1
    starts = [lines.span(line, line + 1)[0] for line in range(content.line, content.line + count)]
    bodies = [text[slice(*lines.span(line, line + 1))].rstrip("\r\n") for line in range(content.line, content.line + count)]
    second = content.text.find("\n") + 1
    prefix = text[starts[1] : content.offsets[second]] if count > 1 else ""
    line_end = text[starts[0] + len(bodies[0]) : starts[1]] if count > 1 else "\n"
    column = content.offsets[start] - next(at for at in reversed(starts) if at <= content.offsets[start])
    source = text[content.offsets[start] : content.offsets[end - 1] + 1]
    width = max(map(len, bodies)) if count > 1 else 0
    width = _WIDTH if 0 < width < _NARROW else width
    return TextSlot(unit, content, start, end, references, line_end, prefix, column, width, source)
