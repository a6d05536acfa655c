"""YAML: string scalars. Comments, anchors, tags, keys, document markers and everything else stay.

PyYAML parses (YAML 1.1: `no` and `on` are booleans) and provides positions. A changed scalar keeps its style if that can hold
the text, else it becomes double-quoted. Aliases are not expanded, so a text that is used twice is translated once.
"""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import yaml
from yaml.emitter import Emitter
from yaml.resolver import Resolver

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.text_document import Span, collected, decoded_text
from triptych_documents.formats.shared.wrapping import wrapped
from triptych_documents.formats.structured.keys import KeyPath, KeySelection
from triptych_documents.unit import Piece, Unit, raw_text
from triptych_text.languages import languages_differ, standard_tag

_STRING = "tag:yaml.org,2002:str"
# A mapping whose only key is a language. In Python 3.11.2, groups with optional parts cannot be repeated with *+ instead.
_RAILS = re.compile(
    r"(?>(?:(?:---)?[ \t\r]*+(?:#[^\n]*+)?\n)*)"
    r"(?P<key>(?P<mark>['\"]?)(?P<language>[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?)(?P=mark)):"
    r"(?:[ \t]+\{|(?>(?:[ \t\r]*+(?:#[^\n]*+)?\n)+)[ \t]+[^\s#-])(?![\s\S]*^[^\s#])",
    re.MULTILINE,
)
_LINE = re.compile(r".*?(?:\r\n|\r|\n|$)")
_UNWRITABLE = re.compile(r"[\r\x85\u2028\u2029]")  # line ends in blocks
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]')


@dataclass(frozen=True, slots=True)
class Scalar:
    """A plain or quoted scalar."""

    span: Span  # without anchor and tag
    text: str
    style: str  # its quotation mark, or ""
    in_flow: bool  # inside of brackets or braces, where commas end it
    tagged: bool  # explicitly tagged, so a string whatever it looks like

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        """Write in its own style, or else in double quotes."""
        text = raw_text(pieces)
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
    """A literal or folded scalar."""

    span: Span  # from its indicator to the end of the last line with text
    text: str  # text of the unit, without leading and trailing line feeds
    value: str
    head: str  # from the indicator to the first line with text
    indent: str
    width: int  # width of folded lines; 0 for literal ones
    line_end: str

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        """Write in its own style if that can hold the text, or else in double quotes."""
        text = raw_text(pieces)
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
        """Return whether the block is read as this value."""
        tail = "\n" * (len(self.value) - len(self.value.rstrip("\n")))
        try:
            found = [event.value for event in yaml.parse(f"- {block}{tail}") if isinstance(event, yaml.ScalarEvent)]
        except yaml.YAMLError:
            return False
        return found == [value]


def block(source: str, span: Span, value: str, folded: bool) -> Block | None:
    """Return the block scalar at a span; None if its first or last line is blank."""
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


def is_string(event: yaml.ScalarEvent) -> bool:
    """Return whether YAML reads the scalar as a string, not as a number, a date or with a custom tag."""
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


_STARTS = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken)
_ENDS = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_DEEPEST = 1_000  # nested collections
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is many times faster with the same positions


@dataclass(slots=True)
class _Inside:
    """A mapping or sequence that encloses the current event."""

    names: bool  # a mapping
    flow: bool
    trail: KeyPath
    count: int = 0  # preceding nodes
    name: str = ""  # name of the member whose value comes next

    @property
    def at_key(self) -> bool:
        return self.names and self.count % 2 == 0

    def passed(self, key: str) -> None:
        """Count a node; `key` is its text if it is a name."""
        if self.at_key:
            self.name = key
        self.count += 1

    @property
    def value(self) -> KeyPath:
        return self.trail.within(self.name if self.names else str(self.count))


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    choice = KeySelection(options)
    text, encoding, bound = decoded_text(data, options, b",")
    units = (
        (Unit((place.text,), trail.shown(), keeps_space=True), place)
        for trail, place, value in _scalars(text, choice.root)
        if place is not None and trail.takes(value)
    )
    document = choice.checked(collected(text, encoding, units, bound))
    return with_messages(replace(document, language=_language(text, encoding, options)), bound)


def _language(text: str, encoding: Encoding, options: ReadOptions) -> tuple[Span, str] | None:
    """Return the place of the language in a message file of Rails, and its new value."""
    wanted, found = standard_tag(options.target_language), _RAILS.match(text)
    source = options.source_language
    if not (wanted and source and found) or languages_differ(found["language"], source):
        return None
    key = Scalar(found.span("key"), found["language"], found["mark"], in_flow=False, tagged=False)
    return key.span, key.written((wanted,), encoding)


def _scalars(text: str, root: KeyPath) -> Iterator[tuple[KeyPath, Scalar | Block | None, str]]:
    try:
        yield from _found(text, root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DamagedDocumentError(f"not YAML: {error.problem}", f"line {mark.line + 1}" if mark else "") from None
    except yaml.YAMLError as error:
        raise DamagedDocumentError(f"not YAML: {' '.join(str(error).split())}") from None


def _found(text: str, root: KeyPath) -> Iterator[tuple[KeyPath, Scalar | Block | None, str]]:
    starts = _starts(text)
    inside: list[_Inside] = []
    keys = 0  # enclosing keys: a key can be a mapping, too
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
    """Map ends of scalars to their starts: an event starts with its anchor and tag, a token does not.

    Nesting is limited because libyaml takes quadratic time in it.
    """
    starts: dict[int, int] = {}
    depth = 0
    for token in yaml.scan(text, Loader=_LOADER):
        if isinstance(token, yaml.ScalarToken):
            starts[token.end_mark.index] = token.start_mark.index
        depth += isinstance(token, _STARTS) - isinstance(token, _ENDS)
        if depth > _DEEPEST:
            raise DamagedDocumentError(f"nested deeper than {_DEEPEST}", f"line {token.start_mark.line + 1}")
    return starts


def _pass(inside: list[_Inside], key: str) -> None:
    if inside:
        inside[-1].passed(key)


def _place(text: str, event: yaml.ScalarEvent, span: Span, inside: list[_Inside]) -> Scalar | Block | None:
    if event.style in ("|", ">"):
        return block(text, span, event.value, event.style == ">")
    style = event.style if event.style in ("'", '"') else ""
    return Scalar(span, event.value, style, any(level.flow for level in inside), event.tag is not None)
