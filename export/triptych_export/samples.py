"""Selection and batching of samples for parity checks."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` evenly spaced items, or all items if there are fewer."""
    return [items[i * len(items) // count] for i in range(count)] if len(items) > count else list(items)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split items into consecutive chunks of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
