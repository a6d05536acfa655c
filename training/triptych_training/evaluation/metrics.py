"""Metrics from sums and counts, in training and of bundles as served; and validation that all processes of a training share."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")
LARGEST = 100.0  # nats; a diverging training has more, and of more than 709 the exponential is no number


def masked_metrics(loss: float, first: int, fifth: int, masks: int) -> dict[str, float]:
    """Metrics of `masks` predicted tokens, whose losses in nats have the sum `loss`.

    `first` of them were the most likely ones, `fifth` among the five most likely.
    """
    mean = loss / masks
    return {"loss": mean, "perplexity": _perplexity(mean), "top1": first / masks, "top5": fifth / masks, "masks": masks}


def next_token_metrics(loss: float, tokens: int) -> dict[str, float]:
    """Metrics of `tokens` next tokens, whose losses in nats have the sum `loss`."""
    mean = loss / tokens
    return {"loss": mean, "perplexity": _perplexity(mean), "tokens": tokens}


def ranked_metrics(first: int, fifth: int, images: int) -> dict[str, float]:
    """Accuracy of `images` classified images, of the best class and of the five best ones."""
    return {"accuracy": first / images, "top5": fifth / images, "images": images}


def bound_metrics(nats: float, images: int, dimensions: int) -> dict[str, float]:
    """Negative log-likelihood, or a bound of it, of images with so many numbers each; `nats` is the sum over all images."""
    mean = nats / images
    each = mean / dimensions
    return {"nats": mean, "nats_per_dimension": each, "bits_per_dimension": each / math.log(2), "images": images}


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, LARGEST))


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
