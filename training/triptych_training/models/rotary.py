"""Rotary position embedding (Su et al. 2021), and attention with it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least, one_of
from triptych_training.models.attention import AttentionShape, SelfAttention

SCALINGS = ("linear", "llama3")


@dataclass(frozen=True)
class RotaryScaling:
    """Change of the frequencies for contexts longer than those of the first training.

    "linear" divides all frequencies by `factor` (Chen et al. 2023); "llama3" only low ones (Llama Team 2024): those with less
    than `low` turns in `original` positions, none of those with more than `high`, and in between a mixture.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def __post_init__(self) -> None:
        one_of(SCALINGS, self, "kind")
        at_least(1, self, "factor", "original")
        if not 0 < self.low < self.high:
            raise ValueError(f"low, high: {self.low} and {self.high} are not ascending numbers above 0")

    def apply(self, frequencies: Tensor) -> Tensor:
        """Scale angular frequencies, in radians for each position."""
        if self.kind == "linear":
            return frequencies / self.factor
        turns = self.original * frequencies / (2 * math.pi)
        share = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - share) * frequencies / self.factor + share * frequencies


class Rotary(nn.Module):
    """Rotation of queries and keys by angles that grow with the position.

    Dimension i is rotated together with dimension i + D/2, as in GPT-NeoX. The tables `[positions, D/2]` are neither trained
    nor stored in checkpoints.

    Raises:
        ValueError: `head_dim` is odd.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, positions: int, head_dim: int, theta: float, scaling: RotaryScaling | None = None) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"head_dim: {head_dim} is odd; rotary positions need pairs of dimensions")
        # Always on the CPU, even if modules are built on the meta device; in float32, as such models were trained.
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        frequencies = 1.0 / theta**exponents
        frequencies = frequencies if scaling is None else scaling.apply(frequencies)
        angles = torch.arange(positions, dtype=torch.float32, device="cpu")[:, None] * frequencies
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rotate `[B, H, T, D]`, positions 0 to T - 1."""
        cosines, sines = self.cosines[: x.shape[2]], self.sines[: x.shape[2]]
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cosines - right * sines, right * cosines + left * sines), dim=-1)


class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions."""

    def __init__(self, shape: AttentionShape, rotary: Rotary) -> None:
        super().__init__(shape)
        self.rotary = rotary

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, T, E]` -> rotated queries, rotated keys and values, each `[B, H, T, D]`."""
        query, key, value = super().project(x)
        return self.rotary(query), self.rotary(key), value
