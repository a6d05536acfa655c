"""The protocol's datatypes, and the raw bytes of `raw_input_contents`: little-endian, in row-major order."""

import math
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

BYTES, BOOL = "BYTES", "BOOL"
WORDS = ["the", "a", "small", "river", "house", "under", "new", "light", "reads", "slowly", "winter", "of", "paper", "they"]
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class NumberType:
    """A datatype of numbers."""

    code: str  # of the struct module; "z" is BF16
    size: int  # bytes
    low: float
    high: float

    @property
    def whole(self) -> bool:
        return self.code not in "efdz"


NUMBERS = {
    BOOL: NumberType("?", 1, 0, 1),
    **{
        f"UINT{8 * size}": NumberType(code, size, 0, 2 ** (8 * size) - 1)
        for code, size in zip("BHIQ", (1, 2, 4, 8), strict=True)
    },
    **{
        f"INT{8 * size}": NumberType(code, size, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)
        for code, size in zip("bhiq", (1, 2, 4, 8), strict=True)
    },
    "FP16": NumberType("e", 2, -65504, 65504),
    "BF16": NumberType("z", 2, -3.3895314e38, 3.3895314e38),  # the shortest decimals that are rounded to the largest numbers
    "FP32": NumberType("f", 4, -3.4028235e38, 3.4028235e38),
    "FP64": NumberType("d", 8, -sys.float_info.max, sys.float_info.max),
}


class ElementError(ValueError):
    """An element does not fit its datatype."""


def encode(datatype: str, elements: Sequence[Any]) -> bytes:
    """Return raw contents.

    Args:
        elements: Texts or bytes for BYTES, otherwise numbers.

    Raises:
        ElementError: An element has the wrong type or is out of range, or the datatype is unknown.
    """
    if datatype == BYTES:
        return b"".join(part for element in elements for part in _length_and_bytes(element))
    number = number_of(datatype)
    checked = [_checked(element, number, datatype) for element in elements]
    if number.code == "z":
        return _bfloat16(checked)
    return struct.pack(f"<{len(checked)}{number.code}", *checked)


def decode(datatype: str, raw: bytes) -> list[Any]:
    """Return the elements of raw contents; those of BYTES are bytes.

    Raises:
        ElementError: The contents are cut off, or the datatype is unknown.
    """
    if datatype == BYTES:
        return list(_elements(raw))
    count, code = count_of(datatype, raw), number_of(datatype).code
    if code == "z":
        return list(struct.unpack(f"<{count}f", b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))))
    return list(struct.unpack(f"<{count}{code}", raw))


def count_of(datatype: str, raw: bytes) -> int:
    """Count the elements of raw contents. Raises as `decode`."""
    if datatype == BYTES:
        return sum(1 for _ in _elements(raw))
    size = number_of(datatype).size
    if len(raw) % size:
        raise ElementError(f"{len(raw):,} bytes are not a whole number of {datatype} elements")
    return len(raw) // size


def random_contents(datatype: str, count: int, generator: random.Random) -> bytes:
    """Return random contents: floats from 0 to 1; integers 0 or 1, which every vocabulary, mask and type has; sentences.

    Raises:
        ElementError: The datatype is unknown.
    """
    if datatype == BYTES:
        return encode(BYTES, [" ".join(generator.choices(WORDS, k=generator.randint(3, 8))) for _ in range(count)])
    whole = number_of(datatype).whole
    return encode(datatype, [generator.randint(0, 1) if whole else generator.random() for _ in range(count)])


def number_of(datatype: str) -> NumberType:
    """Look up a datatype of numbers. Raises ElementError if it is unknown, or BYTES."""
    if datatype not in NUMBERS:
        raise ElementError(f"the datatype {datatype!r} is not one of {', '.join([*NUMBERS, BYTES])}")
    return NUMBERS[datatype]


def _length_and_bytes(element: Any) -> tuple[bytes, bytes]:
    if isinstance(element, str):
        element = element.encode("utf-8", errors="surrogatepass")
    if not isinstance(element, bytes):
        raise ElementError(f"{element!r} is not a string, as {BYTES} requires")
    return _LENGTH.pack(len(element)), element


def _elements(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        end = at + _LENGTH.size
        size = _LENGTH.unpack_from(raw, at)[0] if end <= len(raw) else math.inf
        if end + size > len(raw):
            raise ElementError(
                f"an element of {BYTES} at byte {at:,} is cut off: its length precedes it, 4 bytes, little-endian"
            )
        yield raw[end : end + int(size)]
        at = end + int(size)


def _checked(element: Any, number: NumberType, datatype: str) -> Any:
    if isinstance(element, str) or not isinstance(element, int | float):
        raise ElementError(f"{element!r} is not a number, as {datatype} requires")
    if number.whole and isinstance(element, float) and not element.is_integer():
        raise ElementError(f"{element!r} is not a whole number, as {datatype} requires")
    if not number.low <= element <= number.high and (isinstance(element, int) or math.isfinite(element)):
        raise ElementError(f"{element!r} is out of the range of {datatype}")
    return bool(element) if datatype == BOOL else int(element) if number.whole else float(element)


def _bfloat16(values: Sequence[float]) -> bytes:
    """Round to the upper halves of FP32, ties to even."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    rounded = [
        (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if not math.isnan(value) else 0x7FC0
        for word, value in zip(words, values, strict=True)
    ]
    return struct.pack(f"<{len(values)}H", *rounded)
