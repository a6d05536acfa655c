"""Reading JSON into typed values, collecting every fault on the way instead of stopping at the first."""

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value", int, float, str, bool)


class Fields:
    """One JSON object. A missing or mistyped member is noted in `faults` and read as an empty value of its type."""

    def __init__(self, values: object, path: str, faults: list[str]) -> None:
        self.path = path
        self.faults = faults
        self.values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            faults.append(f"{path or 'the file'} is not an object")

    def get(self, name: str, kind: type[Value], default: Value | None = None) -> Value:
        """The member `name`; `default` where it is absent."""
        if name not in self.values and default is not None:
            return default
        value = self.values.get(name)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            self.faults.append(f"{self._at(name)} is {_describe(value)}, expected {kind.__name__}")
            return kind()
        return value

    def positive(self, name: str) -> int:
        """An integer of at least 1."""
        value = self.get(name, int)
        if name in self.values and type(self.values[name]) is int and value < 1:
            self.faults.append(f"{self._at(name)} is {value}, expected at least 1")
        return value

    def natural(self, name: str) -> int:
        """An integer of at least 0."""
        value = self.get(name, int)
        if value < 0:
            self.faults.append(f"{self._at(name)} is {value}, expected at least 0")
        return value

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """A list of so many numbers."""
        value = self.values.get(name)
        if not isinstance(value, list) or len(value) != count or any(type(item) not in (int, float) for item in value):
            self.faults.append(f"{self._at(name)} is {_describe(value)}, expected a list of {count} numbers")
            return (0.0,) * count
        return tuple(map(float, value))

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.faults.append(f"{self._at(name)} is {_describe(value)}, expected a list of strings")
            return ()
        return tuple(value)

    def object(self, name: str) -> "Fields":
        """A member that is itself an object."""
        return Fields(self.values.get(name), self._at(name), self.faults)

    def objects(self, name: str) -> dict[str, "Fields"]:
        """A member that maps names to objects."""
        return {key: Fields(value, f"{self._at(name)}.{key}", self.faults) for key, value in self.object(name).values.items()}

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _describe(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"
