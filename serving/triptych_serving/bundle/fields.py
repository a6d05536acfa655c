"""Typed access to JSON objects that collects all faults instead of stopping at the first."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST = 2**31 - 1  # integer that messages can hold

Value = TypeVar("Value", int, float, str, bool)
Record = TypeVar("Record", bound="DataclassInstance")


def read_json(text: str) -> Any:
    """Parse JSON. Raises ValueError: it is malformed, or names a member twice, of which one would be ignored."""
    return json.loads(text, object_pairs_hook=_unique)


def _unique(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r:.80} occurs twice in one object, leave one of them out")
    return found


class JsonFields:
    """One JSON object. A missing or mistyped member is added to `faults` and read as an empty value of its type."""

    def __init__(self, values: object, path: str, faults: list[str]) -> None:
        self.path = path
        self.faults = faults
        self.values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            faults.append(f"{path or 'the file'} is not an object")
            self.faults = []  # that it lacks members says nothing more

    def get(self, name: str, kind: type[Value], default: Value | None = None) -> Value:
        """Read a member; `default` if it is absent."""
        if name not in self.values and default is not None:
            return default
        value: Any = self.values.get(name)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        return value if self._fits(type(value) is kind, name, value, kind.__name__) else kind()

    def positive(self, name: str, most: float = LARGEST) -> int:
        """Read an integer from 1 to `most`, which is returned in place of a larger one."""
        return self._integer(name, 1, most)

    def natural(self, name: str) -> int:
        """Read an integer from 0."""
        return self._integer(name, 0, LARGEST)

    def _integer(self, name: str, least: int, most: float) -> int:
        value = self.get(name, int)
        if type(self.values.get(name)) is int:
            self._fits(least <= value <= most, name, value, f"at least {least}" if value < least else f"at most {most:,}")
        return value if value <= most else int(most)

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Read one of several strings; `default` if it is absent."""
        value = self.values.get(name, default)
        return str(value) if self._fits(value in choices, name, value, f"one of {', '.join(choices)}") else default

    def ids(self, name: str) -> tuple[int, ...]:
        """Read a list of integers of at least 0; empty if it is absent."""
        value = self.values.get(name, [])
        return tuple(value) if self._fits(_are_ids(value), name, value, "a list of ids") else ()

    def id_lists(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Read a list of non-empty lists of ids; empty if it is absent."""
        value = self.values.get(name, [])
        if not self._fits(isinstance(value, list), name, value, "a list of lists of ids"):
            return ()
        expected = "a list of ids, at least one"
        fits = [self._fits(bool(ids) and _are_ids(ids), f"{name}[{index}]", ids, expected) for index, ids in enumerate(value)]
        return tuple(map(tuple, value)) if all(fits) else ()

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Read a list of `count` finite numbers."""
        value: Any = self.values.get(name)
        fits = isinstance(value, list) and len(value) == count and all(_is_finite(item) for item in value)
        return tuple(map(float, value)) if self._fits(fits, name, value, f"a list of {count} numbers") else (0.0,) * count

    def strings(self, name: str) -> tuple[str, ...]:
        """Read a list of strings."""
        value: Any = self.values.get(name)
        fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return tuple(value) if self._fits(fits, name, value, "a list of strings") else ()

    def texts(self, name: str) -> dict[str, str]:
        """Read a member that maps names to strings; empty if it is absent."""
        members = self.object(name, optional=True)
        return {key: members.get(key, str) for key in members.values}

    def object(self, name: str, optional: bool = False) -> "JsonFields":
        """Read a member that is an object; an empty one if it is optional and absent."""
        absent: object = {} if optional else None
        return JsonFields(self.values.get(name, absent), self._at(name), self.faults)

    def objects(self, name: str, optional: bool = False) -> dict[str, "JsonFields"]:
        """Read a member that maps names to objects."""
        members = self.object(name, optional).values
        return {key: JsonFields(value, f"{self._at(name)}.{key}", self.faults) for key, value in members.items()}

    def records(self, name: str, kind: type[Record]) -> dict[str, Record]:
        """Read a member that maps names to objects with the fields of a dataclass, which are strings, numbers or flags."""
        types = get_type_hints(kind)
        defaults = {each.name: None if each.default is MISSING else each.default for each in fields(kind)}
        needed = [member for member, default in defaults.items() if default is None]
        found = self.objects(name)
        for given in found.values():
            self.faults.extend(f"{given._at(member)} is empty" for member in needed if given.values.get(member) == "")
        return {
            key: kind(**{member: given.get(member, types[member], default) for member, default in defaults.items()})
            for key, given in found.items()
        }

    def _fits(self, fits: bool, name: str, value: Any, expected: str) -> bool:
        """Return `fits`; if it is False, the member is a fault."""
        if not fits:
            self.faults.append(f"{self._at(name)} is {'missing' if value is None else f'{value!r:.40}'}, expected {expected}")
        return fits

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _is_finite(value: object) -> bool:
    return type(value) in (int, float) and abs(cast("float", value)) <= sys.float_info.max


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
