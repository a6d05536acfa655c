"""Checks of configuration fields; every message names field, value and limit.

The first argument of each check is the dataclass whose fields are named. All of them raise ValueError.
"""

from collections.abc import Collection
from typing import Any


def at_least(limit: float, config: Any, *names: str) -> None:
    """Reject fields below `limit`, and those that are not a number."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float):
            raise ValueError(f"{name}: {value!r:.60} is not a number")
        if not value >= limit:
            raise ValueError(f"{name}: {value} is below {limit}")


def fraction(config: Any, *names: str, closed: bool = False) -> None:
    """Reject fields outside [0, 1), or outside [0, 1] if `closed`."""
    for name in names:
        value = getattr(config, name)
        if not (0 <= value < 1 or (closed and value == 1)):
            raise ValueError(f"{name}: {value} is outside [0, 1{']' if closed else ')'}")


def one_of(choices: Collection[str], config: Any, *names: str) -> None:
    """Reject fields that are none of `choices`."""
    for name in names:
        if getattr(config, name) not in choices:
            raise ValueError(f"{name}: {getattr(config, name)!r} is unknown; choose one of {', '.join(choices)}")


def token_id(size: int, config: Any, *names: str, vocabulary: str = "vocabulary") -> None:
    """Reject ids outside a vocabulary of `size` tokens, and those that are no whole number."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int):
            raise ValueError(f"{name}: {value!r:.60} is not a whole number")
        if not 0 <= value < size:
            raise ValueError(f"{name}: {value} is outside the {vocabulary} of {size}")
