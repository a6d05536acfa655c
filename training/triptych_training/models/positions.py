"""Where a token stands: fixed sinusoids (Vaswani et al. 2017, section 3.5), a learned table, or nothing of the kind."""

import math

import torch
from torch import Tensor, nn

# "sinusoidal" has sines in the even columns and cosines in the odd ones; the other two have all sines first. Marian's
# frequencies are the same ones, fairseq's (tensor2tensor's) reach the lowest frequency itself; its row 0 is our position 0.
FAIRSEQ_FIRST = 2
POSITIONS = ("sinusoidal", "learned", "sinusoidal-marian", "sinusoidal-fairseq", "none")


def sinusoid_table(positions: int, model_dim: int) -> Tensor:
    """`[positions, model_dim]`: sines in the even columns, cosines in the odd ones."""
    angles = _angles(positions, model_dim)
    table = torch.zeros(positions, model_dim, dtype=torch.float64, device="cpu")
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles[:, : model_dim // 2])
    return table.float()


def halved_sinusoid_table(positions: int, model_dim: int) -> Tensor:
    """`[positions, model_dim]`: the same columns, those of the sines first."""
    table = sinusoid_table(positions, model_dim)
    return torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)


def fairseq_sinusoid_table(positions: int, model_dim: int) -> Tensor:
    """`[positions, model_dim]` of fairseq's `SinusoidalPositionalEmbedding`, whose first text position is number 2.

    The frequencies go from 1 to 1/10,000, both included; an odd last column is zero. Single precision throughout: such models
    were trained with the rounding errors that late positions have then.
    """
    half = model_dim // 2
    step = -math.log(10_000.0) / max(1, half - 1)
    position = torch.arange(FAIRSEQ_FIRST, FAIRSEQ_FIRST + positions, dtype=torch.float32, device="cpu")[:, None]
    angles = position * torch.exp(torch.arange(half, dtype=torch.float32, device="cpu") * step)
    table = torch.zeros(positions, model_dim, device="cpu")
    table[:, :half], table[:, half : 2 * half] = torch.sin(angles), torch.cos(angles)
    return table


def _angles(positions: int, model_dim: int) -> Tensor:
    """`[positions, ceil(model_dim / 2)]`; on the CPU whatever device modules are being built on: a table is no weight."""
    position = torch.arange(positions, dtype=torch.float64, device="cpu")[:, None]
    frequency = torch.exp(torch.arange(0, model_dim, 2, dtype=torch.float64, device="cpu") * (-math.log(10_000.0) / model_dim))
    return position * frequency


class SinusoidalPositions(nn.Module):
    """A constant table: nothing to learn, nothing to store in a checkpoint."""

    weight: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", table, persistent=False)


class LearnedPositions(nn.Module):
    """One trained vector a position (Gehring et al. 2017; BERT; ViT)."""

    def __init__(self, positions: int, model_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, model_dim).normal_(std=0.02))


def make_positions(kind: str, positions: int, model_dim: int) -> SinusoidalPositions | LearnedPositions | None:
    """Build the table named `kind`; None for "none".

    Raises:
        ValueError: `kind` is unknown.
    """
    match kind:
        case "sinusoidal":
            return SinusoidalPositions(sinusoid_table(positions, model_dim))
        case "sinusoidal-marian":
            return SinusoidalPositions(halved_sinusoid_table(positions, model_dim))
        case "sinusoidal-fairseq":
            return SinusoidalPositions(fairseq_sinusoid_table(positions, model_dim))
        case "learned":
            return LearnedPositions(positions, model_dim)
        case "none":
            return None
    raise ValueError(f"positions: {kind!r} is unknown; choose one of {', '.join(POSITIONS)}")


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
