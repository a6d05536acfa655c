"""Parameters of requests: types, and conversion from the wire."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Any

from triptych.decoding import SplitSentences
from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError

INTEGERS = ("int64_param", "uint64_param")
# Belongs to the protocol: says how the end of a response stream is marked.
EMPTY_FINAL = "triton_enable_empty_final_response"
MAX_SHOWN = 40  # characters
INTEGER_32_MAX = 2**32 - 1


@dataclass(frozen=True)
class ParameterType:
    """The type of a parameter."""

    text: str  # for errors and metadata
    members: tuple[str, ...]  # of InferParameter
    convert: Callable[[Any], Any] = lambda value: value  # raises ValueError


def _integer(bits: int) -> ParameterType:
    def convert(value: int) -> int:
        if not 0 <= value < 2**bits:
            raise ValueError
        return value

    return ParameterType(f"an integer of 0 to 2^{bits} - 1", INTEGERS, convert)


def _texts(value: str) -> tuple[str, ...]:
    texts = json.loads(value)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError
    return tuple(texts)


def choice(**choices: object) -> ParameterType:
    """Return a type of several words, each of which stands for a value."""

    def convert(value: str) -> object:
        if value not in choices:
            raise ValueError
        return choices[value]

    return ParameterType(f"one of {', '.join(map(repr, choices))}", ("string_param",), convert)


INTEGER, INTEGER_64 = _integer(32), _integer(64)
NUMBER = ParameterType("a number", ("double_param", *INTEGERS), float)
FLAG = ParameterType("a boolean", ("bool_param",))
TEXT = ParameterType("a string", ("string_param",))
TEXTS = ParameterType("a string with a JSON array of strings", ("string_param",), _texts)

ParameterTypes = Mapping[str, ParameterType]


def type_of_option(option: Field[Any]) -> ParameterType:
    """Return the parameter type of a field of `triptych.decoding.DecodingOptions`."""
    kind, bounds = option.metadata["kind"], option.metadata["bounds"]
    if kind is int:
        return INTEGER_64 if INTEGER_32_MAX < bounds.maximum < math.inf else INTEGER
    if kind is SplitSentences:
        return choice(auto=SplitSentences.AUTO, off=SplitSentences.OFF)
    return {float: NUMBER, bool: FLAG, str: TEXTS}[kind]


def parameters_from(given: Mapping[str, pb.InferParameter], known: ParameterTypes) -> dict[str, Any]:
    """Convert the parameters of a request, without the protocol's own.

    Raises:
        InvalidInputError: a parameter is unknown or has another type; names it.
    """
    return {name: _convert(name, parameter, known) for name, parameter in given.items() if name != EMPTY_FINAL}


def wants_empty_final(given: Mapping[str, pb.InferParameter]) -> bool:
    """Tell whether a stream is to end with an empty response. Raises InvalidInputError: the parameter is no boolean."""
    return EMPTY_FINAL in given and bool(_convert(EMPTY_FINAL, given[EMPTY_FINAL], {EMPTY_FINAL: FLAG}))


def _convert(name: str, parameter: pb.InferParameter, known: ParameterTypes) -> Any:
    field = f"parameters.{name}"
    if name not in known:
        raise InvalidInputError(field, f"there is no such parameter; there are: {', '.join(sorted(known))}")
    kind, member = known[name], parameter.WhichOneof("parameter_choice")
    value = getattr(parameter, member) if member else None
    try:
        if member not in kind.members:
            raise ValueError
        return kind.convert(value)
    except (ValueError, RecursionError) as error:
        shown = f"{value[:MAX_SHOWN]!r}..." if isinstance(value, str) and len(value) > MAX_SHOWN else repr(value)
        raise InvalidInputError(field, f"{shown} is not {kind.text}") from error
