"""Reports as JSON: the file that other tools, and `triptych bench compare`, read.

The members are those of `triptych_bench.results.Report`, after `format`, which identifies the file. `version` increases when a
member changes its meaning or is removed; a reader rejects what it does not know, so that nothing is compared by mistake.
"""

import dataclasses
import json
import math
import types
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from triptych_bench.results import Report

FORMAT = "triptych-bench"
VERSION = 1
TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


class ReportError(ValueError):
    """A file is not a valid report; the message names the file and the place in it."""


def dumps(report: Report) -> str:
    """Return the file's text. Raises ValueError if a number is not finite."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(report)}, indent=1, allow_nan=False) + "\n"


def read(path: Path) -> Report:
    """Read a report.

    Raises:
        ReportError: The file cannot be opened, is no report, has another version, or has unknown or missing members.
    """
    try:
        return loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: not UTF-8 at byte {error.start}") from error
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error


def loads(text: str) -> Report:
    """Parse a report. Raises ReportError as `read`."""
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ReportError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # nested too deeply, or an integer with too many digits
        raise ReportError(f"unreadable JSON: {error}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ReportError(f'not a report of `triptych bench`: there is no "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        raise ReportError(f"version: the report has version {value.get('version')!r}, this program reads version {VERSION}")
    report: Report = build(Report, {name: one for name, one in value.items() if name != "format"}, "")
    return report


def _reject_constant(constant: str) -> float:
    raise ReportError(f"{constant} is not JSON")


def build(kind: Any, value: object, place: str) -> Any:
    """Convert a JSON value strictly: missing and unknown members and wrong types are errors.

    Args:
        kind: A dataclass, tuple, dict, union with None, or plain type.
        place: Position, such as `runs[2].latency`.

    Raises:
        ReportError: The value does not fit.
    """
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, place)
    origin = get_origin(kind)
    if origin is types.UnionType:
        [present] = (one for one in get_args(kind) if one is not types.NoneType)
        return None if value is None else build(present, value, place)
    if origin is tuple:
        return _sequence(get_args(kind), value, place)
    if origin is dict:
        return {key: build(get_args(kind)[1], one, f"{place}.{key}") for key, one in _mapping(value, place).items()}
    return _plain(kind, value, place)


def _object(kind: Any, value: object, place: str) -> Any:
    given, fields = _mapping(value, place), {field.name: field for field in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            raise ReportError(f"{_at(place)}unknown member {name!r}")
    for name, field in fields.items():
        if name not in given and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ReportError(f"{_at(place)}the member {name!r} is missing")
    hints = get_type_hints(kind)
    return kind(**{name: build(hints[name], one, f"{place}.{name}".lstrip(".")) for name, one in given.items()})


def _sequence(kinds: tuple[Any, ...], value: object, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ReportError(f"{_at(place)}{_shown(value)} is not a list")
    if kinds[-1] is ...:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise ReportError(f"{_at(place)}the list has {len(value)} elements, it must have {len(kinds)}")
    return tuple(build(kind, one, f"{place}[{index}]") for index, (kind, one) in enumerate(zip(kinds, value, strict=True)))


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
        raise ReportError(f"{_at(place)}{_shown(value)} is not {TYPE_NAMES[kind]}")
    return value


def _at(place: str) -> str:
    return f"{place}: " if place else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
