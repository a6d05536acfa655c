"""Relative positions as a bias on attention scores (Raffel et al. 2020, section 2.1; T5)."""

import math

import torch
from torch import Tensor, nn

FEWEST = 4  # buckets: a single and a ranged one of each direction


def check_buckets(buckets: int, max_distance: int) -> None:
    """The arguments of RelativeBias.

    Raises:
        ValueError: there are too few buckets, or ranges end before they begin.
    """
    if buckets < FEWEST:
        raise ValueError(f"relative_buckets: {buckets} is below {FEWEST}")
    if max_distance <= buckets // 2:
        raise ValueError(f"relative_distance: {max_distance} is not above {buckets // 2}, half of the relative_buckets")


class RelativeBias(nn.Module):
    """A trained number for every head and bucket of distances; distances from `max_distance` on share one bucket.

    Args:
        heads: H.
        buckets: half of them, of each direction, for single distances, the rest for ranges that grow with the logarithm.
        max_distance: in tokens.
        bidirectional: keys behind the query have buckets of their own; else they are taken for distance 0.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Embedding(buckets, heads)

    def forward(self, queries: int, keys: int, first: int = 0) -> Tensor:
        """`[1, H, queries, keys]`: queries stand at positions `first`..., keys at 0..."""
        device = self.table.weight.device
        places = torch.arange(first, first + queries, device=device)
        bias: Tensor = self.table(self.bucket(torch.arange(keys, device=device) - places[:, None]))  # [queries, keys, H]
        return bias.permute(2, 0, 1)[None]

    def bucket(self, distances: Tensor) -> Tensor:
        """Numbers of the buckets of `distances`, each key's position less the query's."""
        count = self.buckets
        if self.bidirectional:
            count //= 2
            start, distances = (distances > 0).long() * count, distances.abs()
        else:
            start, distances = torch.zeros_like(distances), (-distances).clamp(min=0)
        single = count // 2
        ratio = torch.log(distances.clamp(min=1).float() / single) / math.log(self.max_distance / single)
        ranged = (single + (ratio * (count - single)).long()).clamp(max=count - 1)
        return start + torch.where(distances < single, distances, ranged)
