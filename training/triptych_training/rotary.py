"""Rotary position embedding (Su et al. 2021): queries and keys are turned by angles that grow with their position.

Dimension i is turned together with dimension i + D/2, as in GPT-NeoX and ModernBERT.
"""

import torch
from torch import Tensor, nn

from triptych_training.attention import AttentionShape, SelfAttention


class Rotary(nn.Module):
    """Cosines and sines `[positions, D/2]` of every position's angles: nothing to learn, nothing to store in a checkpoint.

    Raises:
        ValueError: `head_dim` is odd.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, positions: int, head_dim: int, theta: float) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"head_dim: {head_dim} is odd; its dimensions are turned in pairs")
        # On the CPU whatever device modules are being built on, and in float32, in which such models were trained.
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        angles = torch.arange(positions, dtype=torch.float32, device="cpu")[:, None] * (1.0 / theta**exponents)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Turn `[B, H, T, D]`, whose first position is number 0."""
        cosines, sines = self.cosines[: x.shape[2]], self.sines[: x.shape[2]]
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cosines - right * sines, right * cosines + left * sines), dim=-1)


class RotaryAttention(SelfAttention):
    """Self-attention that tells positions by their angles."""

    def __init__(self, shape: AttentionShape, rotary: Rotary) -> None:
        super().__init__(shape)
        self.rotary = rotary

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, T, E]` -> turned queries and keys, and values, each `[B, H, T, D]`."""
        query, key, value = super().project(x)
        return self.rotary(query), self.rotary(key), value
