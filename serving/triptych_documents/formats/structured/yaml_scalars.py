"""Scalars of YAML 1.1 in their places: how another text is written in the style that they have."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import yaml
from yaml.emitter import Emitter
from yaml.resolver import Resolver

from triptych_documents.encoding import Encoding
from triptych_documents.formats.shared.spans import Span
from triptych_documents.formats.shared.wrapping import wrapped
from triptych_documents.unit import Piece

_STRING = "tag:yaml.org,2002:str"
_LINE = re.compile(r".*?(?:\r\n|\r|\n|$)")
_UNWRITABLE = re.compile(r"[\r\x85\u2028\u2029]")  # line ends to YAML, in blocks
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]')


@dataclass(frozen=True, slots=True)
class Scalar:
    """Plain or quoted.

    Args:
        span: without its anchor and tag.
        text: of the unit.
        style: its quotation mark, or "".
        in_flow: within brackets or braces, where commas end it.
        tagged: by a tag of its own, so it is a string whatever it looks like.
    """

    span: Span
    text: str
    style: str
    in_flow: bool
    tagged: bool

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        """In its own style, or else in double quotes."""
        text = _text(pieces)
        if self.style != '"' and text and encoding.has(text) and "\n" not in text and self._fits(text):
            return "'" + text.replace("'", "''") + "'" if self.style else text
        return _double_quoted(text, encoding)

    def _fits(self, text: str) -> bool:
        found = Emitter(io.StringIO(), allow_unicode=True).analyze_scalar(text)
        if self.style:
            return bool(found.allow_single_quoted) and not found.multiline
        allowed = found.allow_flow_plain if self.in_flow else found.allow_block_plain
        return bool(allowed) and not found.multiline and (self.tagged or _is_string(text))


@dataclass(frozen=True, slots=True)
class Block:
    """Literal or folded.

    Args:
        span: from its indicator to the end of the last line with text.
        text: of the unit, without the line feeds before and after.
        value: all of it.
        head: from the indicator to its first line with text.
        indent: of its lines.
        width: where folded lines are broken; 0 for literal ones.
        line_end: of its lines.
    """

    span: Span
    text: str
    value: str
    head: str
    indent: str
    width: int
    line_end: str

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        """In its own style if that can hold the text, or else in double quotes."""
        text = _text(pieces)
        before, _, after = self.value.partition(self.text)
        lines = self.line_end.join(self.indent + line if line else "" for line in self._lines(text))
        block = self.head + lines
        if not _UNWRITABLE.search(text) and encoding.has(text) and self._holds(block, before + text + after):
            return block
        return _double_quoted(before + text + after, encoding)

    def _lines(self, text: str) -> list[str]:
        if not self.width:
            return text.split("\n")
        lines: list[str] = []
        for line in text.split("\n"):
            broken = wrapped(line.split(" "), self.width)
            lines += ["", *broken] if lines and line else broken  # an empty line is a line feed
        return lines

    def _holds(self, block: str, value: str) -> bool:
        """Whether a reader finds this value in it."""
        tail = "\n" * (len(self.value) - len(self.value.rstrip("\n")))
        try:
            found = [event.value for event in yaml.parse(f"- {block}{tail}") if isinstance(event, yaml.ScalarEvent)]
        except yaml.YAMLError:
            return False
        return found == [value]


def block(source: str, span: Span, value: str, folded: bool) -> Block | None:
    """The scalar of this value whose place PyYAML says; None where it begins or ends with a line of nothing but spaces."""
    first, *others = [found.span() for found in _LINE.finditer(source, *span) if found.end() > found.start()]
    full = [place for place in others if source[slice(*place)].strip()]
    text = value.strip("\n")
    ends = {text.split("\n", 1)[0].strip(), text.rpartition("\n")[2].strip()}
    if not full or "" in ends:
        return None
    bodies = [source[slice(*place)].rstrip("\r\n") for place in full]
    indent = " " * (_leading(bodies[0]) - _leading(text))
    width = max(map(len, bodies)) - len(indent) if folded else 0
    header = source[slice(*first)]
    line_end = header[len(header.rstrip("\r\n")) :]
    last = full[-1][0] + len(bodies[-1])
    return Block((span[0], last), text, value, source[span[0] : full[0][0]], indent, width, line_end)


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)


def is_string(event: yaml.ScalarEvent) -> bool:
    """Whether this is a string to YAML, and not a number, a date, or of a tag of somebody's own."""
    if event.tag not in (None, "!"):
        return bool(event.tag == _STRING)
    quoted = event.style not in (None, "")
    return quoted or event.tag == "!" or _is_string(event.value)


def _is_string(plain: str) -> bool:
    tag = Resolver().resolve(yaml.ScalarNode, plain, (True, False))  # type: ignore[no-untyped-call]
    return bool(tag == _STRING)


def _double_quoted(text: str, encoding: Encoding) -> str:
    written = _ESCAPED.sub(lambda found: _ESCAPES.get(found[0]) or _numbered(found[0]), text)
    return '"' + encoding.escaped(written, _numbered) + '"'


def _numbered(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
