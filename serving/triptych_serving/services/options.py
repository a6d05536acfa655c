"""Options that several requests have, from the wire."""

from collections.abc import Mapping
from typing import Any, TypeVar

from triptych_serving.errors import InvalidInputError

Choice = TypeVar("Choice")


def optional_from(request: Any, name: str) -> int | None:
    """A number that may be left out."""
    return int(getattr(request, name)) if request.HasField(name) else None


def choice_from(request: Any, name: str, choices: Mapping[Any, Choice]) -> Choice:
    """An enumeration's value.

    Raises:
        InvalidInputError: this release does not know it.
    """
    value = getattr(request, name)
    if value not in choices:
        raise InvalidInputError(name, f"{value} is unknown")
    return choices[value]
