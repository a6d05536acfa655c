"""YAML: scalars that are strings. Comments, anchors, tags, keys, document marks and everything else stay.

PyYAML reads it (YAML 1.1: `no` and `on` are booleans) and says where the scalars are. A changed scalar keeps its style where
that can hold the text, else it becomes double-quoted. Aliases are never expanded, so a text that is used twice is changed once.
"""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml
from yaml.emitter import Emitter
from yaml.resolver import Resolver

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.spans import Span
from triptych_documents.formats.shared.text_document import Bound, TextDocument
from triptych_documents.formats.shared.wrapping import wrapped
from triptych_documents.formats.structured.keys import Choice, Trail
from triptych_documents.unit import Piece, Unit

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


_STARTS = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_ENDS = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_DEEPEST = 1_000  # collections within collections
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is many times faster, and says the same places


@dataclass(slots=True)
class _Inside:
    """A mapping or sequence that the events are within."""

    names: bool  # a mapping
    flow: bool
    trail: Trail
    count: int = 0  # of the nodes before
    name: str = ""  # of the member whose value comes next

    @property
    def at_key(self) -> bool:
        return self.names and self.count % 2 == 0

    def passed(self, key: str) -> None:
        """A node is over; `key` is what it says where it is a name."""
        if self.at_key:
            self.name = key
        self.count += 1

    @property
    def value(self) -> Trail:
        """Of the node that comes next."""
        return self.trail.within(self.name if self.names else str(self.count))


class Yaml:
    """Reads .yaml."""

    name = "yaml"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        choice, bound = Choice(options), Bound(options)
        bound.check_marks(data, b",")
        text, encoding = decode(data, options.encoding)
        units: list[Unit] = []
        places: list[Scalar | Block] = []
        for trail, place, value in _scalars(text, choice.root):
            if place is not None and trail.takes(value):
                units.append(Unit((place.text,), trail.shown(), keeps_space=True))
                bound.check(units)
                places.append(place)
        return TextDocument(text, encoding, units, places)


FORMAT = Yaml()


def _scalars(text: str, root: Trail) -> Iterator[tuple[Trail, Scalar | Block | None, str]]:
    try:
        yield from _found(text, root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DamagedDocumentError(f"it is not YAML: {error.problem}", f"line {mark.line + 1}" if mark else "") from None
    except yaml.YAMLError as error:
        raise DamagedDocumentError(f"it is not YAML: {' '.join(str(error).split())}") from None


def _found(text: str, root: Trail) -> Iterator[tuple[Trail, Scalar | Block | None, str]]:
    """Values that are strings, with their paths."""
    starts = _starts(text)
    inside: list[_Inside] = []
    keys = 0  # how many of them are keys: a key can be a mapping, too
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            keys += bool(inside) and inside[-1].at_key
            trail = inside[-1].value if inside else root
            inside.append(_Inside(isinstance(event, yaml.MappingStartEvent), bool(event.flow_style), trail))
        elif isinstance(event, yaml.CollectionEndEvent):
            inside.pop()
            keys -= bool(inside) and inside[-1].at_key
            _pass(inside, "?")
        elif isinstance(event, yaml.NodeEvent):
            is_value = not keys and not (inside and inside[-1].at_key)
            end = event.end_mark.index if event.end_mark else 0
            if is_value and isinstance(event, yaml.ScalarEvent) and event.value.strip() and is_string(event):
                span = starts[end], end
                yield inside[-1].value if inside else root, _place(text, event, span, inside), event.value
            _pass(inside, getattr(event, "value", "*"))


def _starts(text: str) -> dict[int, int]:
    """Of scalars, by their ends: the place of an event begins with its anchor and tag, that of a token does not.

    The depth is limited, for libyaml's time is quadratic in it.
    """
    starts: dict[int, int] = {}
    depth = 0
    for token in yaml.scan(text, Loader=_LOADER):
        if isinstance(token, yaml.ScalarToken):
            starts[token.end_mark.index] = token.start_mark.index
        depth += isinstance(token, _STARTS) - isinstance(token, _ENDS)
        if depth > _DEEPEST:
            raise DamagedDocumentError(f"it is nested deeper than {_DEEPEST}", f"line {token.start_mark.line + 1}")
    return starts


def _pass(inside: list[_Inside], key: str) -> None:
    if inside:
        inside[-1].passed(key)


def _place(text: str, event: yaml.ScalarEvent, span: Span, inside: list[_Inside]) -> Scalar | Block | None:
    if event.style in ("|", ">"):
        return block(text, span, event.value, event.style == ">")
    style = event.style if event.style in ("'", '"') else ""
    return Scalar(span, event.value, style, any(level.flow for level in inside), event.tag is not None)
