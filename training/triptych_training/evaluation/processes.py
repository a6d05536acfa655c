"""Validation that all processes of a training share; a single process does all of it."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")


def share(items: Sequence[Item]) -> Sequence[Item]:
    """Return this process' part of the items."""
    if not _several():
        return items
    return items[torch.distributed.get_rank() :: torch.distributed.get_world_size()]


def gather(value: Item) -> list[Item]:
    """Return the values of all processes, on each of them."""
    if not _several():
        return [value]
    values: list[Item | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return [each for each in values if each is not None]


def total(*values: float) -> list[float]:
    """Sum each value over all processes."""
    return [sum(column) for column in zip(*gather(values), strict=True)]


def merge(found: Mapping[int, Item]) -> list[Item]:
    """Collect the results of all processes, by number of the item."""
    everything = {number: item for part in gather(dict(found)) for number, item in part.items()}
    return [everything[number] for number in sorted(everything)]


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
