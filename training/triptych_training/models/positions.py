"""Position information: sinusoids (Vaswani et al. 2017, section 3.5), learned tables, T5's relative bias."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least

FAIRSEQ_FIRST = 2  # fairseq's number of the first text position
MIN_BUCKETS = 4  # of a relative bias: one single and one ranged bucket in each direction


def sinusoid_table(positions: int, model_dim: int) -> Tensor:
    """`[positions, model_dim]`: sines in the even columns, cosines in the odd ones."""
    # Always on the CPU: modules may be built on the meta device, tables need values.
    position = torch.arange(positions, dtype=torch.float64, device="cpu")[:, None]
    frequency = torch.exp(torch.arange(0, model_dim, 2, dtype=torch.float64, device="cpu") * (-math.log(10_000.0) / model_dim))
    angles = position * frequency  # [positions, ceil(model_dim / 2)]
    table = torch.zeros(positions, model_dim, dtype=torch.float64, device="cpu")
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles[:, : model_dim // 2])
    return table.float()


def halved_sinusoid_table(positions: int, model_dim: int) -> Tensor:
    """`[positions, model_dim]`: the columns of `sinusoid_table`, sines first (Marian)."""
    table = sinusoid_table(positions, model_dim)
    return torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)


def fairseq_sinusoid_table(positions: int, model_dim: int, first: int = FAIRSEQ_FIRST) -> Tensor:
    """`[positions, model_dim]` as in fairseq's `SinusoidalPositionalEmbedding`; row 0 is its position `first`.

    The frequencies go from 1 to 1/10,000, both included; an odd last column is zero. Computed in float32 throughout, because
    fairseq's models were trained with the rounding errors that late positions have in float32.
    """
    half = model_dim // 2
    step = -math.log(10_000.0) / max(1, half - 1)
    position = torch.arange(first, first + positions, dtype=torch.float32, device="cpu")[:, None]
    angles = position * torch.exp(torch.arange(half, dtype=torch.float32, device="cpu") * step)
    table = torch.zeros(positions, model_dim, device="cpu")
    table[:, :half], table[:, half : 2 * half] = torch.sin(angles), torch.cos(angles)
    return table


# "sinusoidal" has sines in the even columns and cosines in the odd ones; Marian and fairseq put all sines first. Marian uses
# the same frequencies; fairseq's (from tensor2tensor) go down to 1/10,000 itself.
TABLES = {
    "sinusoidal": sinusoid_table,
    "sinusoidal-marian": halved_sinusoid_table,
    "sinusoidal-fairseq": fairseq_sinusoid_table,
}
POSITIONS = ("sinusoidal", "learned", "sinusoidal-marian", "sinusoidal-fairseq", "none")


class SinusoidalPositions(nn.Module):
    """Constant table of position vectors; not trained and not stored in checkpoints."""

    weight: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", table, persistent=False)


class LearnedPositions(nn.Module):
    """Trained vector for each position (Gehring et al. 2017; BERT; ViT)."""

    def __init__(self, positions: int, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, model_dim).normal_(std=0.02))


def falling_slopes(heads: int) -> Tensor:
    """`[heads]`: how fast the scores of each head fall with the distance of a key (Press et al. 2022, ALiBi)."""
    whole = 1 << heads.bit_length() - 1
    powers = [8 / whole * number for number in range(1, whole + 1)]
    powers += [4 / whole * number for number in range(1, 2 * (heads - whole), 2)]
    return torch.tensor([2.0**-power for power in powers], device="cpu")


def make_positions(kind: str, positions: int, model_dim: int) -> SinusoidalPositions | LearnedPositions | None:
    """Build the table named `kind`, one of POSITIONS; None for "none"."""
    if kind in TABLES:
        return SinusoidalPositions(TABLES[kind](positions, model_dim))
    return LearnedPositions(positions, model_dim) if kind == "learned" else None


def check_relative(config: Any) -> None:
    """Raise ValueError if a model configuration's `relative_buckets` or `relative_distance` is out of range."""
    if not config.relative_buckets:
        return
    at_least(MIN_BUCKETS, config, "relative_buckets")
    if config.relative_distance <= (half := config.relative_buckets // 2):
        raise ValueError(f"relative_distance: {config.relative_distance} is not above {half}, half of the relative_buckets")


def make_relative_bias(config: Any, heads: int, bidirectional: bool) -> "RelativeBias | None":
    """Build the bias of a model with such a configuration; None if it has no `relative_buckets`."""
    if not config.relative_buckets:
        return None
    return RelativeBias(heads, config.relative_buckets, config.relative_distance, bidirectional)


def split_by_layer(bias: Tensor | None, heads: int, layers: int) -> Sequence[Tensor | None]:
    """Split a bias `[B, L*H, T, S]` into those of the layers; one of `heads` heads is that of all layers."""
    return [bias] * layers if bias is None or bias.shape[1] == heads else bias.chunk(layers, dim=1)


class RelativeBias(nn.Module):
    """Relative positions as a trained bias on attention scores (T5; Raffel et al. 2020, section 2.1).

    Distances fall into buckets. Half of a direction's buckets hold one distance each, the others hold logarithmic ranges;
    all distances from `max_distance` tokens on share the last one. With `bidirectional`, keys after the query have their own
    half of the buckets; without, they count as distance 0.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Embedding(buckets, heads)

    def forward(self, queries: int, keys: int, first: int = 0) -> Tensor:
        """`[1, H, queries, keys]` for queries at positions `first`... and keys at positions 0..."""
        device = self.table.weight.device
        positions = torch.arange(first, first + queries, device=device)
        distances = torch.arange(keys, device=device) - positions[:, None]  # [queries, keys]
        return self.table(self.bucket(distances)).permute(2, 0, 1)[None]

    def bucket(self, distances: Tensor) -> Tensor:
        """Bucket numbers of `distances` (key position minus query position), in the same shape."""
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
