"""YAML: scalars that are strings. Comments, anchors, tags, keys, document marks and everything else stay.

PyYAML reads it (YAML 1.1: `no` and `on` are booleans) and says where the scalars are. A changed scalar keeps its style where
that can hold the text, else it becomes double-quoted. Aliases are never expanded, so a text that is used twice is changed once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from triptych_documents.encoding import decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.limits import Bound
from triptych_documents.formats.shared.spans import Span
from triptych_documents.formats.shared.text_document import TextDocument
from triptych_documents.formats.structured.keys import Choice, Trail
from triptych_documents.formats.structured.yaml_scalars import Block, Scalar, block, is_string
from triptych_documents.unit import Unit

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
