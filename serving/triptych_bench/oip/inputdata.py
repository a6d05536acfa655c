"""Tensors from a JSON file in the format of perf_analyzer's `--input-data`.

    {"data": [{"INPUT0": [1, 2, 3, 4], "INPUT1": {"content": ["a text"], "shape": [1]}, "INPUT2": {"b64": "AAAA"}}]}

Elements are in row-major order, flat or nested; `b64` is the raw tensor, little-endian, where each element of BYTES has its
length before it in 4 bytes. Lists in `data`, which are sequences there, come one after the other. `validation_data` is
left out.
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
class Given:
    """A tensor of one input, as the file has it: what it must be, only the model says."""

    content: bytes | tuple[Any, ...]  # raw, or elements
    shape: tuple[int, ...] | None = None


def read(path: Path) -> list[Sample]:
    """One sample for each set of tensors; its data is a dict of Given by the tensor's name.

    Raises:
        TargetError: the file cannot be read or is not in this format; names the place.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, too
        raise TargetError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise TargetError(f'{path}: there is no list "data", as in files for perf_analyzer\'s --input-data')
    samples = [Sample(_tensors(one, f"{path}: {place}"), place) for place, one in _entries(value["data"], "data")]
    if not samples:
        raise TargetError(f'{path}: "data" is empty')
    return samples


def _entries(values: list[Any], place: str) -> Iterator[tuple[str, Any]]:
    """Sets of tensors with their places; one list may be in the other."""
    for index, value in enumerate(values):
        if isinstance(value, list) and place == "data":
            yield from _entries(value, f"{place}[{index}]")
        else:
            yield f"{place}[{index}]", value


def _tensors(value: Any, place: str) -> dict[str, Given]:
    if not isinstance(value, dict) or not value:
        raise TargetError(f"{place}: not an object of tensors by name")
    return {name: _given(one, f"{place}.{name}") for name, one in value.items()}


def _given(value: Any, place: str) -> Given:
    if isinstance(value, dict) and "content" in value:
        return Given(_content(value["content"], place), _shape(value.get("shape"), place))
    return Given(_content(value, place))


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
