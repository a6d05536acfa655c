"""External data of ONNX graphs: finds the files that hold a graph's weights, without the onnx package.

Parses only the protobuf messages that can hold a tensor. Each field is a key (its number and wire type) and a value; all other
fields are skipped by their length, so that the cost depends on the structure, not on the gigabytes of weights.
"""

import mmap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from triptych_serving.errors import BundleError

# For each message, the fields (onnx.proto3) that lead to tensors, and the messages they hold.
FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
GRAPH_SUFFIX = ".onnx"
KEY, VALUE = 1, 2  # of an entry
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
ONE_BYTE = 0x7F  # the highest number that is written as one byte
DEEPEST = 100  # maximum nesting of messages, as in protobuf's own parsers
LOCATION, LENGTH = b"location", b"length"

Span = tuple[int, int]
Buffer = mmap.mmap | bytes
Value = TypeVar("Value")


def external_files(path: Path) -> set[str]:
    """Return the file names that a graph's tensors have as their location, as written.

    Raises:
        BundleError: the file is not a graph.
    """
    return set(_read(path, LOCATION, bytes.decode))


def external_bytes(path: Path) -> int:
    """Return the bytes of the tensors outside the graph's own file. Raises BundleError: the file is not a graph."""
    return sum(_read(path, LENGTH, int))


def _read(path: Path, key: bytes, convert: Callable[[bytes], Value]) -> list[Value]:
    """Return the values of all entries with this key."""
    try:
        stat = path.stat()
        entries = _entries(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return [convert(value) for name, value in entries if name == key]
    except (ValueError, OSError) as error:  # an empty file cannot be mapped
        raise BundleError(path, [f"not a graph: {error}"]) from error


@lru_cache(maxsize=64)
def _entries(path: Path, *_version: int) -> tuple[tuple[bytes, bytes], ...]:
    """Return keys and values of the entries that are asked for; one load of a model asks several times."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return tuple(entry for entry in _found(content, (0, len(content))) if entry[0] in (LOCATION, LENGTH))


def _found(content: Buffer, span: Span, kind: str = "model", depth: int = 0) -> Iterator[tuple[bytes, bytes]]:
    if depth > DEEPEST:
        raise ValueError(f"messages are nested more than {DEEPEST} deep")
    for number, field in _fields(content, span):
        inner = FIELDS[kind].get(number)
        if inner == "entry":  # of repeated fields the last one counts
            entry = {number: content[start:end] for number, (start, end) in _fields(content, field)}
            yield entry.get(KEY, b""), entry.get(VALUE, b"")
        elif inner is not None:
            yield from _found(content, field, inner, depth + 1)


def _fields(content: Buffer, span: Span) -> Iterator[tuple[int, Span]]:
    """Yield number and extent of the fields with a length. Most numbers have one byte, for which a call would take too long."""
    place, end = span
    while place < end:
        key, place = content[place], place + 1
        if key > ONE_BYTE:
            key, place = _varint(content, place - 1, end)
        if key >= 1 << 32:  # of which protobuf's own parsers read the lower bits alone
            raise ValueError(f"a field's key before byte {place:,} has more than 32 bits")
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            _, place = _varint(content, place, end)
        elif wire in (FIXED64, FIXED32):
            place += 8 if wire == FIXED64 else 4
        elif wire == BYTES:
            if place < end and (length := content[place]) <= ONE_BYTE:
                start = place + 1
            else:
                length, start = _varint(content, place, end)
            place = start + length
            if place <= end:
                yield number, (start, place)
        else:
            raise ValueError(f"wire type {wire} at byte {place:,}")
    if place != end:
        raise ValueError(f"a field ends behind byte {end:,}, where its message does")


def _varint(content: Buffer, place: int, end: int) -> tuple[int, int]:
    """Decode a number; return it and the position of the next field."""
    value = shift = 0
    while place < end and shift < 70:
        byte = content[place]
        place += 1
        value |= (byte & ONE_BYTE) << shift
        if byte <= ONE_BYTE:
            return value, place
        shift += 7
    raise ValueError(f"a number does not end before byte {place:,}")
