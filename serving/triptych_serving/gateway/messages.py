"""Messages as JSON values, and these as bytes. protobuf's conversion takes as long for an embedding's numbers as the model."""

import base64
import json
import math
import reprlib
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from starlette.responses import JSONResponse

WELL_KNOWN = "google.protobuf."  # types with a JSON form of their own
WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
PIECE = 10_000  # values of JSON that are made in one go: no other thread runs meanwhile
REAL = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def to_dict(message: Message, plain: bool = False) -> dict[str, Any]:
    """Return a message as protobuf's JSON has it, without fields that have their default.

    Args:
        plain: names as in the proto, with defaults, and numbers where protobuf's JSON has strings for 64 bits.
    """
    if not plain:
        return {field.json_name: _value(field, value, plain) for field, value in message.ListFields()}
    fields: list[Any] = [field for field in message.DESCRIPTOR.fields if not field.has_presence or message.HasField(field.name)]
    return {field.name: _value(field, getattr(message, field.name), plain) for field in fields}


def _value(field: FieldDescriptor, value: Any, plain: bool) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _single(inner, value[key], plain) for key in value}
    if not field.is_repeated:
        return _single(field, value, plain)
    if field.cpp_type in REAL and all(map(math.isfinite, value)):
        return list(value)
    return [_single(field, one, plain) for one in value]


def _single(field: FieldDescriptor, value: Any, plain: bool) -> Any:
    if isinstance(value, Message):
        well_known = value.DESCRIPTOR.full_name.startswith(WELL_KNOWN)
        return json_format.MessageToDict(value) if well_known else to_dict(value, plain)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return value if found is None else found.name
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if field.cpp_type in WIDE and not plain else value


class JsonResponse(JSONResponse):
    """A response in JSON that is made in pieces: a million numbers at once would stop all other threads for half a second."""

    def render(self, content: Any) -> bytes:
        return to_json(content)


def to_json(value: Any) -> bytes:
    """Return a value as JSON, made in pieces. Raises ValueError: it has a number that is not finite."""
    return b"".join(_pieces(value))


def size_of(value: Any) -> int:
    """Return roughly the number of values in a value of JSON: the first of a list stands for all of it."""
    if isinstance(value, dict):
        return 1 + sum(map(size_of, value.values()))
    if isinstance(value, list) and value:
        return len(value) * size_of(value[0])
    return 1 + len(value) // 16 if isinstance(value, str) else 1


def _pieces(value: Any) -> Iterator[bytes]:
    if size_of(value) <= PIECE or not isinstance(value, (dict, list)):
        yield _dumped(value)
    elif isinstance(value, dict):
        for index, (name, inner) in enumerate(value.items()):
            yield b"%b%b:" % (b"," if index else b"{", _dumped(name))
            yield from _pieces(inner)
        yield b"}"
    else:
        for index, part in enumerate(_parts(value)):
            yield b"," if index else b"["
            if len(part) == 1:
                yield from _pieces(part[0])
            else:
                yield _dumped(part)[1:-1]
        yield b"]"


def _parts(values: list[Any]) -> Iterator[list[Any]]:
    """Split a list into parts of at most PIECE values; an element that has more is a part of its own."""
    if isinstance(values[0], (int, float)):
        yield from (values[first : first + PIECE] for first in range(0, len(values), PIECE))
        return
    first = held = 0
    for index, one in enumerate(values):
        size = size_of(one)
        if held and held + size > PIECE:
            yield values[first:index]
            first, held = index, 0
        held += size
    yield values[first:]


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def shortened(value: object, most: int) -> str:
    """Return the beginning of a value's `repr`, without making the whole of it."""
    return (repr(value[:most]) if isinstance(value, str) else reprlib.repr(value))[:most]


def mismatch(place: str, value: object, wanted: str) -> str:
    """Return the problem of a value of JSON of another type than `wanted`."""
    return f"{place}: {type(value).__name__} {shortened(value, 40)}, must be {wanted}"


def fault_in(value: object, descriptor: Descriptor, path: str = "") -> str:
    """Return why JSON is no message, such as `options.returnScores: int 1, must be true or false`; "" if nothing is found.

    protobuf's own errors quote whole values and Python's internals, and have several lines.
    """
    if not isinstance(value, dict):
        return mismatch(path, value, "an object")
    for name, inner in value.items():
        place = f"{path}.{name:.60}".removeprefix(".")
        field = descriptor.fields_by_camelcase_name.get(name) or descriptor.fields_by_name.get(name)
        if field is None:
            return f"{place}: there is no such field; the fields are {', '.join(one.json_name for one in descriptor.fields)}"
        if inner is None or (field.message_type is not None and field.message_type.GetOptions().map_entry):
            continue
        if field.is_repeated and not isinstance(inner, list):
            return mismatch(place, inner, "a list")
        places = [(f"{place}[{index}]", one) for index, one in enumerate(inner)] if field.is_repeated else [(place, inner)]
        if found := next((found for each in places if (found := _fault_in_one(field, *each))), ""):
            return found
    return ""


def _fault_in_one(field: FieldDescriptor, place: str, value: object) -> str:
    if (message := field.message_type) is not None:
        return "" if message.full_name.startswith(WELL_KNOWN) else fault_in(value, message, place)
    if field.enum_type is not None:
        names = [one.name for one in field.enum_type.values]
        wanted, fits = f"one of {', '.join(names)}", value in names or isinstance(value, int)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        wanted, fits = "a string", isinstance(value, str)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        wanted, fits = "true or false", isinstance(value, bool)
    elif field.cpp_type in REAL:
        wanted, fits = "a finite number", math.isfinite(_number(value)) or value in ("NaN", "Infinity", "-Infinity")
    else:
        least, most = RANGES[field.cpp_type]
        wanted = f"an integer from {least:,} to {most:,}"
        fits = (number := _number(value)).is_integer() and least <= number <= most
    return "" if fits else mismatch(place, value, wanted)


def _number(value: object) -> float:
    """Return a number of JSON, or one that a string has; NaN if it is neither."""
    try:
        return math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
