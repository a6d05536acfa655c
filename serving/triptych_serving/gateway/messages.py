"""Messages as JSON values. protobuf's own conversion takes as long for an embedding's numbers as the model."""

import base64
import math
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

WELL_KNOWN = "google.protobuf."  # types with a JSON form of their own
WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
REAL = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


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
