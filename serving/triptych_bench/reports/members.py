"""Dataclasses out of JSON values, strictly: what is missing, unknown or of another type is an error that names its place."""

import dataclasses
import math
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

from triptych_bench.reports.errors import ReportError

NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


def build(kind: Any, value: object, place: str) -> Any:
    """`value` as `kind`: a dataclass, tuple, dict, union with None, or plain type.

    Args:
        place: where it stands, such as `runs[2].latency`.

    Raises:
        ReportError: it is something else.
    """
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, place)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else build(_present(kind), value, place)
    if origin is tuple:
        return _sequence(get_args(kind), value, place)
    if origin is dict:
        return {key: build(get_args(kind)[1], one, f"{place}.{key}") for key, one in _mapping(value, place).items()}
    return _plain(kind, value, place)


def _object(kind: Any, value: object, place: str) -> Any:
    given, fields = _mapping(value, place), {field.name: field for field in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            raise ReportError(f"{_at(place)}there is no member {name!r}")
    for name, field in fields.items():
        if name not in given and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ReportError(f"{_at(place)}the member {name!r} is missing")
    hints = get_type_hints(kind)
    return kind(**{name: build(hints[name], one, f"{place}.{name}".lstrip(".")) for name, one in given.items()})


def _sequence(kinds: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ReportError(f"{_at(place)}{_shown(value)} is not a list")
    if kinds[-1] is not ...:
        if len(value) != len(kinds):
            raise ReportError(f"{_at(place)}the list has {len(value)} elements, it must have {len(kinds)}")
        return tuple(build(kind, one, f"{place}[{index}]") for index, (kind, one) in enumerate(zip(kinds, value, strict=True)))
    return tuple(build(kinds[0], one, f"{place}[{index}]") for index, one in enumerate(value))


def _mapping(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ReportError(f"{_at(place)}{_shown(value)} is not an object")
    return value


def _plain(kind: type, value: object, place: str) -> object:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    if type(value) is not kind or kind is float:  # true is an int, too
        raise ReportError(f"{_at(place)}{_shown(value)} is not {NAMES[kind]}")
    return value


def _present(kind: Any) -> Any:
    """T of `T | None`."""
    [one] = (one for one in get_args(kind) if one is not types.NoneType)
    return one


def _at(place: str) -> str:
    return f"{place}: " if place else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
