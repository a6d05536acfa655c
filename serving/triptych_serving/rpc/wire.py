"""Messages as bytes: lists counted before they are parsed, and large responses made of parts.

Lists are counted first because an element of two bytes takes thirty in a parsed message.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor

CHUNK = 1 << 20  # bytes
VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)  # wire types


class ListField(NamedTuple):
    """A field that is a list, or a message in which there are lists."""

    name: str
    is_list: bool
    inner: "Lists"


Lists = Mapping[int, ListField]  # by field number
NO_LISTS: Mapping[str, Lists] = {}
DEEPEST = 100  # messages within each other: the parser rejects more
FIELDS = 32  # of a message, for each element that a list may have: to skip one takes longer than to parse it
Parts = list[bytes]  # a serialized message in pieces: a large one is never held as a message object


class LongListError(Exception):
    """A list has too many elements; the message is its path, such as `options.target_prefix`, or empty for all fields."""


def nested(number: int, parts: Iterable[bytes]) -> Parts:
    """Return the parts of a field that holds bytes or a message, given in parts itself."""
    content = list(parts)
    return [varint(number << 3 | BYTES) + varint(sum(map(len, content))), *content]


def chunks(content: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """Copy bytes chunk by chunk: one copy of all would keep the GIL for too long."""
    view = memoryview(content)
    return (bytes(view[start : start + CHUNK]) for start in range(0, len(view), CHUNK))


def join(parts: Parts) -> bytes:
    """Join the parts of a message and drop them: their memory is free before gRPC copies the message. Releases the GIL."""
    message = b"".join(parts)
    parts.clear()
    return message


def varint(value: int) -> bytes:
    """Return a number as in serialized messages: 7 bits in a byte, the lowest first."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def lists_of(descriptor: Descriptor, outer: Mapping[str, Lists] = NO_LISTS) -> Lists:
    """Return the lists of a message type; a recursive type, such as Struct, contains itself."""
    found: dict[int, ListField] = {}
    outside = {**outer, descriptor.full_name: found}
    for field in descriptor.fields:
        kind = field.message_type
        recursive = kind is not None and kind.full_name in outside
        inner = {} if kind is None else outside[kind.full_name] if recursive else lists_of(kind, outside)
        if field.is_repeated or recursive or inner:
            found[field.number] = ListField(field.name, field.is_repeated, inner)
    return found


def check_lists(message: bytes, lists: Lists, most: int) -> None:
    """Check that each list has at most `most` elements, all of them four times as many, and the message FIELDS times as many.

    Packed numbers are not counted, as they take little memory. What is no valid message is left to the parser.

    Raises:
        LongListError: a list has more, or the message has more fields, such as one that is repeated although it is no list.
    """
    if len(message) > 2 * most:  # an element has at least two bytes
        _Scan(message, most).scan(0, len(message), lists, "")


class _Scan:
    """One pass over a message, which ends early where a list is too long."""

    def __init__(self, message: bytes, most: int) -> None:
        self._message, self._most = message, most
        self._left = 4 * most
        self._fields = FIELDS * most

    def scan(self, place: int, end: int, lists: Lists, path: str, depth: int = 0) -> None:
        counts, groups = dict.fromkeys(lists, 0), 0
        while place < end:
            tag, place = self._varint(place)
            self._fields -= 1
            if self._fields < 0:
                raise LongListError
            if tag & 7 == BYTES:
                size, start = self._varint(place)
                place = start + size
            elif tag & 7 in (VARINT, FIXED64, FIXED32):
                start = place
                place = {FIXED64: place + 8, FIXED32: place + 4}.get(tag & 7) or self._varint(place)[1]
            elif tag & 7 in (GROUP, GROUP_END):  # an unknown field, whatever is inside: no message type has groups
                groups += 1 if tag & 7 == GROUP else -1
                continue
            else:
                return
            field = None if groups else lists.get(tag >> 3)
            if field is None:
                continue
            name = f"{path}{field.name}"
            if field.is_list:
                counts[tag >> 3] += 1
                self._left -= 1
                if counts[tag >> 3] > self._most or self._left < 0:
                    raise LongListError(name)
            if field.inner and tag & 7 == BYTES and depth < DEEPEST:
                self.scan(start, min(place, end), field.inner, f"{name}.", depth + 1)

    def _varint(self, place: int) -> tuple[int, int]:
        """Return a number and the place after it; a cut or endless one ends the message."""
        value = 0
        for shift in range(0, 70, 7):
            if place >= len(self._message):
                break
            byte = self._message[place]
            place += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, place
        return 0, len(self._message)
