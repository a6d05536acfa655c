"""Conversion between the client's values and protobuf messages, by field name."""

import json
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from types import NoneType
from typing import Any, TypedDict, TypeVar, get_args, get_type_hints

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from triptych.decoding import DecodingOptions
from triptych.v1 import attention_pb2, model_pb2, translation_pb2
from triptych_client.results import Attention, DocumentFinding, Hypothesis, Model, Timing, Translation, weights_view

MessageType = TypeVar("MessageType", bound=Message)
Result = TypeVar("Result")
# The only arguments whose names differ from those on the wire.
WIRE_NAMES = {"source_language": "source_language_code", "target_language": "target_language_code"}

JSON_FIELDS = ("json_schema", "parameters", "arguments")  # texts, which may be given as dicts

PROBLEMS = (TypeError, ValueError, OverflowError, AttributeError)  # of protobuf with a value; the last two with a Struct


class ServedFields(TypedDict):
    """The fields of `triptych_client.results.Served`."""

    model: str
    model_version: str
    timing: Timing
    request_id: str


def fill(kind: type[MessageType], values: Mapping[str, Any]) -> MessageType:
    """Make a message from named values. None leaves a field unset; an enum value is given by its short name, such as "mean".

    Raises:
        TypeError: A value of another type, such as a single text for a field that takes several.
        ValueError: An integer out of range, a text that is not Unicode, or an unknown enum value.
    """
    named = {WIRE_NAMES.get(name, name): value for name, value in values.items() if value is not None}
    known: Mapping[str, Any] = kind.DESCRIPTOR.fields_by_name
    wire = {name: _wire_value(known[name], value) for name, value in named.items()}
    try:
        return kind(**wire)
    except PROBLEMS:  # protobuf's own do not name the field
        for name, value in wire.items():
            try:
                kind(**{name: value})
            except PROBLEMS as error:
                problem = TypeError if isinstance(error, TypeError | AttributeError) else ValueError
                # protobuf says of these only "bad argument type for built-in operation"
                is_text = problem is TypeError and known[name].type == known[name].TYPE_STRING
                reason = f"must be {'texts' if known[name].is_repeated else 'a text'}" if is_text else error
                raise problem(f"{name} is {named[name]!r:.40}: {reason}") from None
        raise


def _wire_value(field: Any, value: Any) -> Any:
    if field.is_repeated and isinstance(value, str):
        # It would be read as a sequence of one-letter texts.
        raise TypeError(f"{field.name} takes several values, not one text")
    most = {field.TYPE_UINT32: 2**32 - 1, field.TYPE_UINT64: 2**64 - 1}.get(field.type)
    if most and isinstance(value, int) and not 0 <= value <= most:
        raise ValueError(f"{field.name} is {value}, must be from 0 to {most:,}")
    if field.name in JSON_FIELDS and isinstance(value, Mapping):
        return json.dumps(value)
    if field.name == "glossary":
        pairs = value.items() if isinstance(value, Mapping) else value
        return [translation_pb2.GlossaryTerm(source=source, target=target) for source, target in pairs]
    if field.is_repeated and field.message_type and isinstance(value, list):
        kind = GetMessageClass(field.message_type)
        return [fill(kind, one) if isinstance(one, Mapping) else one for one in value]
    if field.enum_type is not None:
        numbers = {name: number for number, name in enum_names(field.enum_type).items()}
        if value not in numbers:
            raise ValueError(f"{field.name} is {value!r}, must be one of: {', '.join(numbers)}")
        return numbers[value]
    return value


@cache
def enum_names(enum: Any) -> dict[int, str]:
    """Map the numbers of a protobuf enum to short names: POOLING_MEAN is "mean". The unspecified value is left out."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {value.number: value.name.removeprefix(prefix).lower() for value in enum.values if value.number}


def options_message(options: DecodingOptions) -> translation_pb2.DecodingOptions:
    """Convert the options of a translation."""
    return fill(translation_pb2.DecodingOptions, {field.name: getattr(options, field.name) for field in fields(options)})


def read(kind: type[Result], message: Any, **given: Any) -> Result:
    """Make a dataclass from the fields of a message with the same names, and those that are given.

    Nested messages become dataclasses, repeated fields tuples, enums StrEnums (`UNKNOWN` for a number that this client does not
    know); a field that may be None is None if it is not set.
    """
    plan: list[tuple[str, Callable[[Any], Any]]] = _plan(kind, message.DESCRIPTOR)  # type: ignore[arg-type]
    return kind(**{name: value_of(message) for name, value_of in plan if name not in given}, **given)


def same(value: Any) -> Any:
    """Return a value as it is."""
    return value


@cache
def _plan(kind: Any, descriptor: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    """Choose how to read each field that the dataclass and the message share."""
    hints = get_type_hints(kind)
    known = descriptor.fields_by_name
    return [(name, _reading(hints[name], known[name])) for name in (f.name for f in fields(kind)) if name in known]


_is_nested: Callable[[Any], bool] = is_dataclass


def _reading(hint: Any, field: Any) -> Callable[[Any], Any]:
    """Return a function that takes the value of a field from a message."""
    name, kinds = field.name, get_args(hint)
    if NoneType in kinds:
        convert = _conversion(kinds[0], field)
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    convert = _conversion(hint, field)
    return lambda message: convert(getattr(message, name))


def _conversion(hint: Any, field: Any) -> Callable[[Any], Any]:
    if field.is_repeated:
        item = get_args(hint)[0]
        return (lambda messages: tuple(read(item, message) for message in messages)) if _is_nested(item) else tuple
    if _is_nested(hint):
        return partial(read, hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        members = {number: hint(name) for number, name in enum_names(field.enum_type).items() if name in list(hint)}
        return lambda number: members.get(number, hint("unknown"))
    return same


def served_from(message: Any, request_id: str) -> ServedFields:
    """Read the fields that all results of a call share, from a message with model and timing."""
    return ServedFields(
        model=message.model, model_version=message.model_version, timing=read(Timing, message.timing), request_id=request_id
    )


def _spans(tokens: Iterable[translation_pb2.TextSpan]) -> tuple[tuple[int, int], ...]:
    return tuple((token.start, token.end) for token in tokens)


def hypothesis_from(message: translation_pb2.Hypothesis) -> Hypothesis:
    """Read one hypothesis."""
    alignment = tuple(tuple(token.source_weights) for token in message.alignment)
    return read(Hypothesis, message, alignment=alignment, spans=_spans(message.tokens))


def translation_from(message: translation_pb2.Translation, served: ServedFields) -> Translation:
    """Read one translation."""
    return Translation(
        text=message.translated_text,
        hypotheses=tuple(map(hypothesis_from, message.hypotheses)),
        source_token_count=message.source_token_count,
        source_spans=_spans(message.source_tokens),
        findings=tuple(read(DocumentFinding, finding) for finding in message.findings),
        **served,
    )


def attention_from(message: attention_pb2.AttendResponse) -> Attention:
    """Read the attention of one input."""
    return read(Attention, message, **{name: _weights(message, name) for name in ("encoder", "decoder", "cross")})


def _weights(message: attention_pb2.AttendResponse, name: str) -> memoryview | None:
    if not message.HasField(name):  # type: ignore[arg-type]
        return None
    weights: attention_pb2.AttentionWeights = getattr(message, name)
    values = array("f", weights.values)
    if sys.byteorder == "big":
        values.byteswap()
    return weights_view(values, (weights.layers, weights.heads, weights.targets, weights.sources))


def model_from(message: model_pb2.Model) -> Model:
    """Read the description of a model."""
    languages = {
        "source_languages": tuple(message.source_language_codes),
        "target_languages": tuple(message.target_language_codes),
    }
    return read(Model, message, **languages)
