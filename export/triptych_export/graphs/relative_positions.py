"""Relative position biases in graphs: a table of biases by distance, and look-ups into it.

Shapes: `B` rows, `H` heads, `S` source and `T` target positions.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.models.positions import RelativeBias


class DistanceBias(nn.Module):
    """T5's bias of attention scores (Raffel et al. 2020, section 2.1); distances beyond the table use its last entry."""

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        self.last = bias.max_distance
        self.first = -self.last if bias.bidirectional else 0  # of the distances of a query from its key
        numbers = bias.bucket(-torch.arange(self.first, self.last + 1))
        self.table = nn.Parameter(bias.table.weight.detach()[numbers], requires_grad=False)  # [distances, H]

    def forward(self, length: Tensor) -> Tensor:
        """Biases between all positions, `[1, H, T, T]`; `length` `[T]` int64 holds the positions 0 to T - 1."""
        return self._look_up(length[:, None] - length)[None]

    def at(self, positions: Tensor, capacity: int) -> Tensor:
        """Biases of one query per row at `positions` `[B]` int32 to the first `capacity` keys: `[B, H, 1, capacity]`."""
        keys = torch.arange(capacity, dtype=torch.int32)
        return self._look_up(positions[:, None] - keys).transpose(0, 1)[:, :, None]

    def _look_up(self, distances: Tensor) -> Tensor:
        """`[N, M]` -> `[H, N, M]`."""
        within = distances.float().clamp(self.first, self.last)  # as floats: CUDA has no kernel that clamps whole numbers
        places = within.to(distances.dtype) - self.first
        return functional.embedding(places, self.table).permute(2, 0, 1)
