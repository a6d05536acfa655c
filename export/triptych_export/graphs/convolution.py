"""Layers with a short convolution over static caches: the inputs of the convolution are cached as if they were keys and values.

So the caches of all layers have one shape, and prompts, beams and shared prefixes are copied by position, as for attention.
Shapes: `B` rows, `S` tokens, `T` cache positions, `K` heads of `D` dimensions in a cache, `E` model dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from triptych_export.graphs.operators import gather_places, write_places
from triptych_training.models.gpt import GptLayer


def convolve(layer: GptLayer, x: Tensor, caches: Sequence[Tensor], starts: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run a layer for new tokens.

    Args:
        layer: with a convolution.
        x: `[B, S, E]`.
        caches: `[B, K, T, D]` each; together they hold at least `E` numbers for each position.
        starts: `[B]` int32, position of each row's first token.

    Returns:
        `[B, S, E]`, and the caches, to be bound to the memory of the given ones.
    """
    own = layer.convolution
    assert own is not None
    values, gate = own.enter(layer.attention_residual.enter(x))
    length, width = values.shape[1:]
    heads, size = caches[0].shape[1], caches[0].shape[3]
    places = starts[:, None].long() + torch.arange(length)  # [B, S]
    filled = functional.pad(values, (0, len(caches) * heads * size - width))
    new = torch.unflatten(filled, 2, (len(caches), heads, size)).permute(2, 0, 3, 1, 4)  # [caches, B, K, S, D]
    current = _indices(places, heads)
    present = [write_places(cache, current, part) for cache, part in zip(caches, new.unbind(0), strict=True)]
    parts = []
    for distance in range(own.reach - 1, 0, -1):
        earlier = _indices((places - distance).clamp_min(0), heads)
        read = torch.stack([gather_places(cache, earlier, size) for cache in present])  # [caches, B, K, S, D]
        joined = read.permute(1, 3, 0, 2, 4).flatten(2)[:, :, :width]
        parts.append(torch.where((places >= distance)[:, :, None], joined, 0.0))
    return layer.finish(x, own.leave([*parts, values], gate)), present


def _indices(places: Tensor, heads: int) -> Tensor:
    """Return the first three indices of positions `[B, S]` in a cache, `[B, K, S, 3]`."""
    shape = places.shape[0], heads, places.shape[1]
    rows, numbers = torch.arange(places.shape[0])[:, None, None], torch.arange(heads)[:, None]
    return torch.stack([each.expand(shape) for each in (rows, numbers, places[:, None])], dim=-1)
