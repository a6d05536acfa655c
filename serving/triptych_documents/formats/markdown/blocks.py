"""Text blocks of a Markdown document: markdown-it's blocks with the offsets of their content.

CommonMark with GFM tables, front matter, footnotes, definition lists, `:::` containers, `!!!` admonitions and `===` tabs, and
dollar math, which would otherwise be read as text. Code and link definitions are not text, nor is front matter here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

from triptych_documents.formats.markdown.tokens import PlacedInline, parts_of
from triptych_documents.formats.shared.inline_codes import ScannedPart
from triptych_documents.formats.shared.text_document import LineIndex, Span
from triptych_documents.interruption import checkpoint

_PIPE = re.compile(r"(?<!\\)\|")
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*")
# In YAML, whose beginning is the first group, or in Hugo's TOML, which blank lines may precede.
FRONT = re.compile(
    r"(?:(---)|\s*+\+\+\+)[ \t]*(?>\r\n|\n|\r)(?P<body>(?:[^\r\n]*+(?>\r\n|\n|\r))*?)"
    r"(?(1)(?:---|\.\.\.)|\+\+\+)[ \t]*(?=\r|\n|$)"
)
_LINE_END = re.compile(r"\r\n|\r")
# A content tab of MkDocs is read as an admonition, which has the same syntax. No line becomes another one.
_TAB = re.compile(r"^([ \t]*)===[+!]*(?=[ ]+\"[^\"\r\n]+\"[ \t]*\r?$)", re.MULTILINE)
# Statements of JavaScript in MDX, which look like a paragraph.
_SCRIPT = re.compile(
    r"import\s+(?:[\w*{][^'\"]{0,1000}?\sfrom\s+)?(['\"])[^'\"\n]+\1;?[ \t]*(?:\n|$)"
    r"|export\s+(?:\*|\{|(?:const|let|var|class|(?:async\s+)?function)\s|default\s+(?:function|class|async|[({]|\w+;))"
)
# Title of a `:::` container: `note The title`, `note[The title]`; no attributes.
_CONTAINER = "container_any_open"
_TITLE = re.compile(r"[ \t]*(?:\{admonition\}|[\w-]+)(?:\[([^\[\]]+)\]|[ \t]+([^{}=\"\s](?:[^{}=\"]*[^{}=\"\s])?))[ \t]*$")
_CELLS = ("td_open", "th_open")

References = dict[str, Any]  # markdown-it's environment with link definitions


@dataclass(frozen=True)
class TextBlock:
    """A paragraph, heading or cell."""

    text: str  # content without line prefixes
    offsets: Sequence[int]  # offset of each character, and of the end, in the document
    kind: str  # type of the enclosing token: "paragraph_open", "heading_open", "td_open"
    atx: bool  # a heading on one line, after `#`
    parts: Sequence[ScannedPart] | None  # its inline content; None if the spans are not known
    line: int  # its first line, from 0

    @property
    def in_table(self) -> bool:
        """True for a cell: `|` is escaped and all is on one line."""
        return self.kind in _CELLS


@dataclass(frozen=True)
class MarkdownBlocks:
    """Block structure of a document."""

    contents: Sequence[TextBlock]  # text blocks in order
    html: Sequence[Span]  # spans of top-level HTML blocks
    skeleton: Sequence[tuple[str, ...]]  # everything else; equal for documents of the same structure
    references: References  # link definitions


def parsed(text: str) -> MarkdownBlocks:
    references: References = {}
    front = FRONT.match(text)
    blank = _LINE_END.sub("\n", re.sub(r"[^\r\n]", "", front[0])) if front else ""  # keeps line numbers
    body = _TAB.sub(r"\1!!! tab", text[front.end() if front else 0 :])
    tokens = _parser().parse(f"{blank}{body}\n", references)  # a container that ends with "> " raises IndexError without
    finder = _Finder(text)
    contents = [found for before, token in pairwise(tokens) if token.type == "inline" for found in finder.found(before, token)]
    contents += [found for token in tokens if token.type == _CONTAINER for found in finder.container(token, references)]
    html = [finder.span(token) for token in tokens if token.type == "html_block" and not token.level]
    return MarkdownBlocks(contents, html, [_shape(token) for token in tokens], references)


def inline(content: str, references: References) -> list[ScannedPart] | None:
    parser = _parser()
    tokens: list[Token] = []
    parser.inline.parse(content, parser, references, tokens)
    return parts_of(content, tokens)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 100}).enable(["table", "strikethrough"])
    parser.inline = PlacedInline(parser.inline)
    parser.block.ruler.before("code", "checkpoint", _checkpoint)
    parser.use(deflist_plugin).use(footnote_plugin, inline=False, move_to_end=False)
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False)
    parser.use(admon_plugin)
    parser.use(container_plugin, "any", validate=lambda *_: True)
    parser.disable(["text_join", "fragments_join", "footnote_ref"])  # two lose offsets, one takes quadratic time
    parser.validateLink = lambda *_: True  # type: ignore[method-assign]  # accept any URL
    # Nothing reads the URLs of tokens, and escaping the letters of long ones would take quadratic time.
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    return parser


def _checkpoint(*_: object) -> bool:
    checkpoint()
    return False


def _shape(token: Token) -> tuple[str, ...]:
    content = "" if token.type == "inline" else token.content
    if token.type == "html_block" and not token.level:
        content = " ".join(_TAG.findall(content))
    if token.type == "admonition_open":  # these have its title
        return token.type, token.markup, token.meta["tag"]
    title = _TITLE.match(token.info) if token.type == _CONTAINER else None
    info = token.info[: title.start(title.lastindex or 0)] if title else token.info
    return token.type, token.tag, token.markup, info, content


class _Finder:
    """Finds the offsets of text blocks, in document order."""

    def __init__(self, text: str) -> None:
        self._text, self._lines = text, LineIndex(text)
        self._row = -1  # line of the current table row
        self._cells: list[list[int]] = []  # offsets of its remaining cells

    def span(self, token: Token) -> Span:
        return self._lines.span(*token.map) if token.map else (0, 0)

    def found(self, before: Token, token: Token) -> Iterator[TextBlock]:
        """Yield the text block of an inline token, unless it is empty, no text, or its place is unknown."""
        if not token.map or (before.type == "paragraph_open" and _SCRIPT.match(token.content)):
            return
        atx = before.type == "heading_open" and before.markup.startswith("#")
        if before.type in _CELLS:
            offsets = self._cell(token, token.map[0])
        elif before.type == "admonition_title_open":
            offsets = self._title(token, token.map[0])
        else:
            offsets = self._heading(before, token, token.map[0]) if atx else self._paragraph(token, token.map[0])
        if offsets and token.content:
            parts = parts_of(token.content, token.children or ())
            yield TextBlock(token.content, offsets, before.type, atx, parts, token.map[0])

    def container(self, token: Token, references: References) -> Iterator[TextBlock]:
        """Yield the title of a container, if it has one."""
        found = _TITLE.match(token.info)
        if not found or not found.lastindex or not token.map:
            return
        title = found[found.lastindex]
        body, start = self._body(token.map[0])
        at = start + body.rfind(title)
        yield TextBlock(title, range(at, at + len(title) + 1), token.type, True, inline(title, references), token.map[0])

    def _paragraph(self, token: Token, line: int) -> list[int] | None:
        offsets: list[int] = []
        for number, content in enumerate(token.content.split("\n"), line):
            body, start = self._body(number)
            body = body if body.endswith(content) else body.rstrip()
            kept = content if body.endswith(content) else content.lstrip()  # a tab can be cut and then counts as spaces
            if not body.endswith(kept):
                return None
            at = start + len(body) - len(kept)
            offsets += [at] * (len(content) - len(kept)) + list(range(at, start + len(body) + 1))
        return offsets

    def _heading(self, before: Token, token: Token, line: int) -> list[int] | None:
        body, start = self._body(line)
        marks = body.find(before.markup)
        at = body.find(token.content, marks + len(before.markup))
        return None if min(marks, at) < 0 else list(range(start + at, start + at + len(token.content) + 1))

    def _title(self, token: Token, line: int) -> list[int] | None:
        body, start = self._body(line)
        at = start + body.find(f'"{token.content}"') + 1
        return list(range(at, at + len(token.content) + 1)) if at > start else None

    def _cell(self, token: Token, line: int) -> list[int] | None:
        if line != self._row:
            self._row, self._cells = line, self._split(line, token.content)
        offsets = self._cells.pop(0) if self._cells else []
        written = "".join(self._text[at] for at in offsets[:-1])
        return offsets if written == token.content else None

    def _split(self, line: int, first: str) -> list[list[int]]:
        """Split a row into cells; a prefix of the first one, such as a quote mark, is cut off."""
        body, start = self._body(line)
        edges = [-1, *(found.start() for found in _PIPE.finditer(body)), len(body)]
        cells = [_unescaped(body, edge + 1, end, start) for edge, end in pairwise(edges)]
        texts = ["".join(self._text[at] for at in cell[:-1]) for cell in cells]
        if len(cells) > 1 and texts[1] == first and not (first and texts[0].endswith(first)):
            return cells[1:]
        cells[0] = cells[0][len(texts[0]) - len(first) :]
        return cells

    def _body(self, line: int) -> tuple[str, int]:
        start, end = self._lines.span(line, line + 1)
        return self._text[start:end].rstrip("\r\n").replace("\0", "\ufffd"), start


def _unescaped(body: str, start: int, end: int, base: int) -> list[int]:
    """Return the offsets of a cell's characters and its end, without backslashes before pipes."""
    cell = body[start:end]
    first = start + len(cell) - len(cell.lstrip(" \t"))
    after = max(first, start + len(cell.rstrip(" \t")))
    kept = [at for at in range(first, after) if not (body[at] == "\\" and body.startswith("|", at + 1))]
    return [base + at for at in [*kept, after]]
