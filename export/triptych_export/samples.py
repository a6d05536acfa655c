"""Choosing what the comparisons run on."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """`count` items evenly from all of them, or all where there are fewer."""
    return [items[i * len(items) // count] for i in range(count)] if len(items) > count else list(items)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in order, `size` at a time."""
    return [items[start : start + size] for start in range(0, len(items), size)]
