"""A request's parameters: the options of each task, and their types."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError

INTEGERS = ("int64_param", "uint64_param")
# The protocol's own: they say how a stream's end is told, and nothing to the model.
EMPTY_FINAL = "triton_enable_empty_final_response"
PROTOCOL = (EMPTY_FINAL,)
MAX_SHOWN = 40  # characters


@dataclass(frozen=True)
class Kind:
    """What a parameter may be."""

    text: str  # for people
    members: tuple[str, ...]  # of InferParameter
    convert: Callable[[Any], Any] = lambda value: value  # raises ValueError


def _whole(bits: int) -> Kind:
    def convert(value: int) -> int:
        if not 0 <= value < 2**bits:
            raise ValueError
        return value

    return Kind(f"an integer of 0 to 2^{bits} - 1", INTEGERS, convert)


def _texts(value: str) -> tuple[str, ...]:
    texts = json.loads(value)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError
    return tuple(texts)


def choice(**choices: object) -> Kind:
    """One of several words, each of which stands for a value."""

    def convert(value: str) -> object:
        if value not in choices:
            raise ValueError
        return choices[value]

    return Kind(f"one of {', '.join(map(repr, choices))}", ("string_param",), convert)


WHOLE, SEED = _whole(32), _whole(64)
NUMBER = Kind("a number", ("double_param", *INTEGERS), float)
FLAG = Kind("a boolean", ("bool_param",))
TEXT = Kind("a string", ("string_param",))
TEXTS = Kind("a string with a JSON array of strings", ("string_param",), _texts)

Parameters = Mapping[str, Kind]


def parameters_from(given: Mapping[str, pb.InferParameter], known: Parameters) -> dict[str, Any]:
    """The values by name; the protocol's own are left out.

    Raises:
        InvalidInputError: one is unknown, or of another type; names it.
    """
    return {name: _value(name, parameter, known) for name, parameter in given.items() if name not in PROTOCOL}


def flag_from(given: Mapping[str, pb.InferParameter], name: str) -> bool:
    """A boolean that may be missing.

    Raises:
        InvalidInputError: it is of another type.
    """
    return name in given and bool(_value(name, given[name], {name: FLAG}))


def _value(name: str, parameter: pb.InferParameter, known: Parameters) -> Any:
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
        raise InvalidInputError(field, f"{_shown(value)} is not {kind.text}") from error


def _shown(value: object) -> str:
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"{value[:MAX_SHOWN]!r}..."
    return repr(value)
