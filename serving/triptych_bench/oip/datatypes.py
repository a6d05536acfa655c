"""The protocol's datatypes, and elements as the raw bytes of `raw_input_contents`: little-endian, in row-major order."""

import math
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

BYTES, BOOL = "BYTES", "BOOL"
WORDS = (
    "the",
    "a",
    "small",
    "river",
    "house",
    "under",
    "new",
    "light",
    "reads",
    "slowly",
    "winter",
    "of",
    "paper",
    "they",
    "open",
)
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Number:
    """A datatype of numbers of one size."""

    code: str  # of struct; of BF16, that of its upper half's
    size: int  # bytes
    low: float
    high: float

    @property
    def whole(self) -> bool:
        return self.code not in "efdz"


NUMBERS = {
    BOOL: Number("?", 1, 0, 1),
    **{f"UINT{8 * size}": Number(code, size, 0, 2 ** (8 * size) - 1) for code, size in zip("BHIQ", (1, 2, 4, 8), strict=True)},
    **{
        f"INT{8 * size}": Number(code, size, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)
        for code, size in zip("bhiq", (1, 2, 4, 8), strict=True)
    },
    "FP16": Number("e", 2, -65504, 65504),
    "BF16": Number("z", 2, -3.3895e38, 3.3895e38),
    "FP32": Number("f", 4, -3.4028234e38, 3.4028234e38),
    "FP64": Number("d", 8, -math.inf, math.inf),
}


class ElementError(ValueError):
    """An element that its datatype does not have."""


def encode(datatype: str, elements: Sequence[Any]) -> bytes:
    """Raw contents.

    Args:
        elements: texts or bytes of BYTES, else numbers.

    Raises:
        ElementError: an element is of another kind or out of range, or the datatype is unknown.
    """
    if datatype == BYTES:
        return b"".join(part for element in elements for part in _length_and_bytes(element))
    number = number_of(datatype)
    checked = [_checked(element, number, datatype) for element in elements]
    if number.code == "z":
        return _brain(checked)
    return struct.pack(f"<{len(checked)}{number.code}", *checked)


def decode(datatype: str, raw: bytes) -> list[Any]:
    """The elements; bytes of BYTES.

    Raises:
        ElementError: the bytes are cut off, or the datatype is unknown.
    """
    if datatype == BYTES:
        return list(_elements(raw))
    number = number_of(datatype)
    if len(raw) % number.size:
        raise ElementError(f"{len(raw):,} bytes are no whole number of elements of {datatype}")
    if number.code == "z":
        return list(struct.unpack(f"<{len(raw) // 2}f", b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))))
    return list(struct.unpack(f"<{len(raw) // number.size}{number.code}", raw))


def count_of(datatype: str, raw: bytes) -> int:
    """How many elements raw contents have. Raises as `decode`."""
    if datatype == BYTES:
        return sum(1 for _ in _elements(raw))
    size = number_of(datatype).size
    if len(raw) % size:
        raise ElementError(f"{len(raw):,} bytes are no whole number of elements of {datatype}")
    return len(raw) // size


def made_up(datatype: str, count: int, generator: random.Random) -> bytes:
    """Random contents: fractions from 0 to 1; whole numbers 0 or 1, which are in every vocabulary, mask and type; sentences.

    Raises:
        ElementError: the datatype is unknown.
    """
    if datatype == BYTES:
        return encode(BYTES, [" ".join(generator.choices(WORDS, k=generator.randint(3, 8))) for _ in range(count)])
    whole = number_of(datatype).whole
    return encode(datatype, [generator.randint(0, 1) if whole else generator.random() for _ in range(count)])


def number_of(datatype: str) -> Number:
    """Raises ElementError: the datatype is unknown, or BYTES."""
    if datatype not in NUMBERS:
        raise ElementError(f"the datatype {datatype!r} is not one of {', '.join([*NUMBERS, BYTES])}")
    return NUMBERS[datatype]


def _length_and_bytes(element: Any) -> tuple[bytes, bytes]:
    if isinstance(element, str):
        element = element.encode("utf-8", errors="surrogatepass")
    if not isinstance(element, bytes):
        raise ElementError(f"{element!r} is not a string, as {BYTES} has them")
    return _LENGTH.pack(len(element)), element


def _elements(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        end = at + _LENGTH.size
        size = _LENGTH.unpack_from(raw, at)[0] if end <= len(raw) else math.inf
        if end + size > len(raw):
            raise ElementError(
                f"an element of {BYTES} at byte {at:,} is cut off: each has its length before it, 4 bytes, little-endian"
            )
        yield raw[end : end + int(size)]
        at = end + int(size)


def _checked(element: Any, number: Number, datatype: str) -> Any:
    if isinstance(element, str) or not isinstance(element, int | float):
        raise ElementError(f"{element!r} is not a number, as {datatype} has them")
    if number.whole and not float(element).is_integer():
        raise ElementError(f"{element!r} is not a whole number, as {datatype} has them")
    if math.isfinite(element) and not number.low <= element <= number.high:
        raise ElementError(f"{element!r} is out of the range of {datatype}")
    return bool(element) if datatype == BOOL else int(element) if number.whole else float(element)


def _brain(values: Sequence[float]) -> bytes:
    """The upper halves of FP32, rounded to the nearest, to even in the middle."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    rounded = [
        (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if not math.isnan(value) else 0x7FC0
        for word, value in zip(words, values, strict=True)
    ]
    return struct.pack(f"<{len(values)}H", *rounded)
