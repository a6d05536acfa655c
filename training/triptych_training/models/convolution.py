"""Short convolutions between positions, which replace the attention of some layers (LFM2, Liquid AI 2025).

Shapes: `B` texts, `T` positions, `E` model dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class ShortConvolution(nn.Module):
    """Gated convolution of each position with the last ones before it, each dimension by itself.

    `enter`, and `leave` after the choice of positions, are apart so that export can put a cache between them.
    """

    def __init__(self, width: int, reach: int, bias: bool) -> None:
        super().__init__()
        self.reach = reach  # positions that are read, the own included
        self.project = nn.Linear(width, 3 * width, bias)
        self.weight = nn.Parameter(torch.empty(width, reach))  # of the oldest position first
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.output = nn.Linear(width, width, bias)

    def enter(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, T, E]` -> what the convolution reads, and the gate of its results, `[B, T, E]` each."""
        inner, gate, given = self.project(x).chunk(3, dim=-1)
        return inner * given, gate

    def leave(self, parts: Sequence[Tensor], gate: Tensor) -> Tensor:
        """Convolve: `parts` are `[B, T, E]` of each position's oldest one up to itself."""
        mixed = torch.stack([part * self.weight[:, index] for index, part in enumerate(parts)]).sum(0)
        return self.output(gate * (mixed if self.bias is None else mixed + self.bias))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`."""
        values, gate = self.enter(x)
        padded, length = functional.pad(values, (0, 0, self.reach - 1, 0)), x.shape[1]
        return self.leave([padded[:, first : first + length] for first in range(self.reach)], gate)
