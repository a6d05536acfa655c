"""Tensors from a JSON file in the format of perf_analyzer's `--input-data`.

    {"data": [{"INPUT0": [1, 2, 3, 4], "INPUT1": {"content": ["a text"], "shape": [1]}, "INPUT2": {"b64": "AAAA"}}]}

Elements are in row-major order, flat or nested; `b64` is the raw tensor, little-endian, with a 4-byte length before each
element of BYTES. Lists in `data`, which are sequences there, are read one after the other. `validation_data` is ignored.
https://github.com/triton-inference-server/perf_analyzer/blob/main/docs/input_data.md
"""

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych_bench.target import Sample, TargetError


@dataclass(frozen=True)
class InputTensor:
    """A tensor from a file; only the model knows its datatype."""

    content: bytes | tuple[Any, ...]  # raw contents, or elements
    shape: tuple[int, ...] | None = None


def read(path: Path) -> list[Sample]:
    """Read one sample for each set of tensors; its data is a dict of InputTensor by name.

    Raises:
        TargetError: The file cannot be read or has another format; the message names the place.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # or not UTF-8
        raise TargetError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise TargetError(f'{path}: there is no list "data", as perf_analyzer\'s --input-data has')
    samples = [Sample(_tensors(one, f"{path}: {place}"), place) for place, one in _entries(value["data"], "data")]
    if not samples:
        raise TargetError(f'{path}: "data" is empty')
    return samples


def _entries(values: list[Any], place: str) -> Iterator[tuple[str, Any]]:
    """Yield sets of tensors with their places, also from nested lists."""
    for index, value in enumerate(values):
        if isinstance(value, list) and place == "data":
            yield from _entries(value, f"{place}[{index}]")
        else:
            yield f"{place}[{index}]", value


def _tensors(value: Any, place: str) -> dict[str, InputTensor]:
    if not isinstance(value, dict) or not value:
        raise TargetError(f"{place}: not an object of tensors by name")
    return {name: _given(one, f"{place}.{name}") for name, one in value.items()}


def _given(value: Any, place: str) -> InputTensor:
    if isinstance(value, dict) and "content" in value:
        return InputTensor(_content(value["content"], place), _shape(value.get("shape"), place))
    return InputTensor(_content(value, place))


def _content(value: Any, place: str) -> bytes | tuple[Any, ...]:
    if isinstance(value, dict):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (KeyError, TypeError, binascii.Error, ValueError) as error:
            raise TargetError(f'{place}: neither a list of elements nor {{"b64": "..."}} in base64') from error
    return tuple(_flat(value)) if isinstance(value, list) else (value,)


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _shape(value: Any, place: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in value
    ):
        raise TargetError(f"{place}.shape: {value!r} is not a list of sizes")
    return tuple(value)
