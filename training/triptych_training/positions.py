"""Position encodings: fixed sinusoids (Vaswani et al. 2017, section 3.5) or a learned table."""

import math

import torch
from torch import Tensor, nn

POSITIONS = ("sinusoidal", "learned")


def sinusoid_table(positions: int, model_dim: int) -> Tensor:
    """`[positions, model_dim]`: sines in the even columns, cosines in the odd ones."""
    position = torch.arange(positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, model_dim, 2, dtype=torch.float64) * (-math.log(10_000.0) / model_dim))
    table = torch.zeros(positions, model_dim, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: model_dim // 2])
    return table.float()


class SinusoidalPositions(nn.Module):
    """A constant table: nothing to learn, nothing to store in a checkpoint."""

    weight: Tensor

    def __init__(self, positions: int, model_dim: int) -> None:
        super().__init__()
        self.register_buffer("weight", sinusoid_table(positions, model_dim), persistent=False)


class LearnedPositions(nn.Module):
    """One trained vector a position (Gehring et al. 2017; BERT; ViT)."""

    def __init__(self, positions: int, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, model_dim).normal_(std=0.02))


def make_positions(kind: str, positions: int, model_dim: int) -> SinusoidalPositions | LearnedPositions:
    """Build the table named `kind`.

    Raises:
        ValueError: `kind` is neither "sinusoidal" nor "learned".
    """
    if kind == "sinusoidal":
        return SinusoidalPositions(positions, model_dim)
    if kind == "learned":
        return LearnedPositions(positions, model_dim)
    raise ValueError(f"positions: {kind!r} is unknown; choose one of {', '.join(POSITIONS)}")
