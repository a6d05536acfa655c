"""Markdown: paragraphs, headings, items and cells with emphasis, links, code spans, images and HTML tags as codes.

CommonMark with what GitHub and site generators add (see markdownblocks). Only the stretches that changed are written. What is
written is read again: where the document's structure would be another one, the translation at fault is left out. Blocks of HTML
are read as HTML.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from triptych_documents.encoding import Encoding, decode
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.html.reader import FORMAT as HTML
from triptych_documents.formats.markdown.blocks import Blocks, Content, parsed
from triptych_documents.formats.markdown.text import TextPlace, reference, signature
from triptych_documents.formats.shared.inline_codes import core, pieces_of, soft
from triptych_documents.formats.shared.spans import Lines, Span, replaced
from triptych_documents.formats.shared.text_document import Bound
from triptych_documents.unit import Piece, Unit, joined

_HEAD = re.compile(r"(<[^<>\r\n]*>)(\r\n|\n|\r)")
_NARROW, _WIDTH = 60, 80  # columns: a paragraph of lines that are shorter than the one is broken at the other
_UNPLACED = "the places of its parts are not known, so it stays as it is"
_UNWRITTEN = "the translation would make other markup here, so the source text stays"


@dataclass(frozen=True, slots=True)
class Written:
    """What comes into a site's place."""

    text: str
    pieces: Sequence[Sequence[Piece]]  # of each of its units, as it should be read again


@dataclass(frozen=True, slots=True)
class TextSite:
    """A paragraph, heading or cell."""

    unit: Unit
    place: TextPlace

    @property
    def units(self) -> Sequence[Unit]:
        """The one."""
        return (self.unit,)

    @property
    def span(self) -> Span:
        """Of the document's text."""
        return self.place.span

    def written(self, translations: Mapping[int, Sequence[Piece]], encoding: Encoding) -> str:
        """What comes into the span."""
        return self.place.written(translations[0], encoding)


@dataclass(frozen=True, slots=True)
class HtmlSite:
    """An HTML block: a document within the document."""

    units: Sequence[Unit]
    document: Document
    span: Span
    head: str  # a first line that is a tag: some tags begin a block only where they have a line of their own
    line_end: str

    def written(self, translations: Mapping[int, Sequence[Piece]], encoding: Encoding) -> str:
        """What comes into the span."""
        html = self.document.render(translations).decode()
        rest = html.removeprefix(self.head)
        if self.head and rest != html and rest.startswith(" "):
            html = self.head + self.line_end + rest.lstrip(" ")
        return encoding.escaped(html, reference)


@dataclass(frozen=True)
class MarkdownDocument:
    """A document that has been read.

    Args:
        text: all of it.
        encoding: of its bytes.
        blocks: its structure.
        sites: what has units, in order.
        unwritten: findings of the last `render`.
    """

    text: str
    encoding: Encoding
    blocks: Blocks
    sites: Sequence[TextSite | HtmlSite]
    unwritten: list[Finding] = field(default_factory=list)

    @cached_property
    def units(self) -> Sequence[Unit]:
        """In order."""
        return [unit for site in self.sites for unit in site.units]

    @property
    def findings(self) -> Sequence[Finding]:
        """Of paragraphs whose parts could not be placed, and of translations that could not be written."""
        lines = [content.line + 1 for content in self.blocks.contents if content.parts is None]
        unplaced = [Finding(FindingKind.FORMAT, Severity.WARNING, f"line {line}", _UNPLACED) for line in lines]
        return [*unplaced, *self.unwritten]

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """As Document says."""
        changed = {index: tuple(pieces) for index, pieces in translations.items() if joined(pieces) != self.units[index].pieces}
        written: dict[int, Written] = {}
        asked: dict[int, list[Unit]] = {}  # of each site
        first = 0
        for number, site in enumerate(self.sites):
            mine = {index: changed[first + index] for index in range(len(site.units)) if first + index in changed}
            if mine:
                asked[number] = [site.units[index] for index in mine]
            text = site.written(mine, self.encoding) if mine else self.text[slice(*site.span)]
            if text != self.text[slice(*site.span)]:
                written[number] = Written(text, [mine.get(index, unit.pieces) for index, unit in enumerate(site.units)])
            first += len(site.units)
        sound = self._sound(written)
        left = [unit.where for number, units in asked.items() if number not in sound for unit in units]
        self.unwritten[:] = [Finding(FindingKind.FORMAT, Severity.ERROR, where, _UNWRITTEN) for where in left]
        return self.encoding.encode(self._with(sound))

    def _with(self, written: Mapping[int, Written]) -> str:
        return replaced(self.text, [(self.sites[number].span, new.text) for number, new in written.items()])

    def _sound(self, written: dict[int, Written]) -> dict[int, Written]:
        """As many of them as leave the structure as it was: halves are tried where the whole does not."""
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
        again = read(self._with(written), self.encoding)
        if again.blocks.skeleton != self.blocks.skeleton:
            return False
        expected = [written[number].pieces if number in written else _own(site) for number, site in enumerate(self.sites)]
        wanted = [[signature(soft(pieces)) for pieces in site] for site in expected]
        return wanted == [[signature(soft(unit.pieces)) for unit in site.units] for site in again.sites]


def _own(site: TextSite | HtmlSite) -> list[Sequence[Piece]]:
    return [unit.pieces for unit in site.units]


class Markdown:
    """Reads .md."""

    name = "markdown"

    def read(self, data: bytes, options: ReadOptions) -> MarkdownDocument:
        """As Format says."""
        Bound(options).check_marks(data, b"<", b"*", b"_", b"`", b"[", b"|", each=2, lines=2)
        return read(*decode(data, options.encoding))


FORMAT = Markdown()


def read(text: str, encoding: Encoding) -> MarkdownDocument:
    """The document of this text."""
    blocks, lines = parsed(text), Lines(text)
    sites: list[TextSite | HtmlSite] = []
    for content in blocks.contents:
        parts = core(content.parts or ())
        if parts:
            place = _place(text, lines, content, parts[0].start, parts[-1].end, blocks)
            sites.append(TextSite(Unit(pieces_of(parts), lines.where(place.span[0])), place))
    for span in blocks.html:
        document = HTML.read(text[slice(*span)].encode(), ReadOptions(encoding="utf-8"))
        units = [replace(unit, where=lines.where(span[0])) for unit in document.units]
        head = _HEAD.match(text, *span)
        sites.append(HtmlSite(units, document, span, head[1] if head else "", head[2] if head else ""))
    return MarkdownDocument(text, encoding, blocks, sorted(sites, key=lambda site: site.span))


def _place(text: str, lines: Lines, content: Content, start: int, end: int, blocks: Blocks) -> TextPlace:
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
    return TextPlace(content, start, end, blocks.references, line_end, prefix, column, width, source)
