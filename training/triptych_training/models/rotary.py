"""Rotary position embedding (Su et al. 2021), and attention with it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least, one_of
from triptych_training.models.attention import AttentionShape, SelfAttention

SCALINGS = ("linear", "llama3", "longrope", "ntk", "yarn")


@dataclass(frozen=True)
class RotaryScaling:
    """Change of the frequencies for contexts longer than those of the first training.

    "linear" divides all frequencies by `factor` (Chen et al. 2023); "llama3" only low ones (Llama Team 2024): those with less
    than `low` turns in `original` positions, none of those with more than `high`, and in between a mixture. "yarn" (Peng et al.
    2023) does so with another mixture, and multiplies what is rotated by `amplitude`, as does "longrope" (Ding et al. 2024),
    which divides each frequency by one of its own. "ntk" divides the lowest frequency by `factor`, the highest by 1, and those
    in between by powers of `factor`, as a larger base does.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    kind: str
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
    divisors: tuple[float, ...] = ()
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "divisors", tuple(self.divisors))
        one_of(SCALINGS, self, "kind")
        at_least(1, self, "factor", "original")
        if not 0 < self.low < self.high:
            raise ValueError(f"low, high: {self.low} and {self.high} are not ascending numbers above 0")

    def apply(self, frequencies: Tensor) -> Tensor:
        """Scale angular frequencies, in radians for each position."""
        if self.kind == "longrope":
            if len(self.divisors) != len(frequencies):
                raise ValueError(
                    f"divisors: {len(self.divisors)} of them, expected one for each of {len(frequencies)} frequencies"
                )
            return frequencies / frequencies.new_tensor(self.divisors)
        if self.kind == "linear":
            return frequencies / self.factor
        if self.kind == "ntk":
            return frequencies / self.factor ** torch.linspace(0, 1, len(frequencies), device=frequencies.device)
        turns = self.original * frequencies / (2 * math.pi)
        if self.kind == "yarn":
            share = self._yarn_share(turns.double()).to(frequencies.dtype)
        else:
            share = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - share) * frequencies / self.factor + share * frequencies

    def _yarn_share(self, turns: Tensor) -> Tensor:
        """Return how much of each frequency stays: it falls by the same amount from one frequency to the next."""
        step = float((turns[0] / turns[-1]).log()) / max(1, len(turns) - 1) or 1.0
        first, last = (math.log(float(turns[0]) / limit) / step for limit in (self.high, self.low))
        start, end = max(0, math.floor(first)), min(2 * len(turns) - 1, math.ceil(last))
        return 1 - ((torch.arange(len(turns), device=turns.device) - start) / (end - start or 0.001)).clamp(0, 1)


class Rotary(nn.Module):
    """Rotation of queries and keys by angles that grow with the position.

    Dimension i is rotated together with dimension i + D/2, as in Llama. The tables `[positions, D/2]` are neither trained
    nor stored in checkpoints.

    Args:
        positions: rows of the tables.
        head_dim: D.
        theta: base of the frequencies.
        scaling: of the frequencies.
        rotary_dim: dimensions that are rotated: the first ones of both halves; 0: all.

    Raises:
        ValueError: `head_dim` or `rotary_dim` is odd, or `rotary_dim` is above `head_dim`.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(
        self, positions: int, head_dim: int, theta: float, scaling: RotaryScaling | None = None, rotary_dim: int = 0
    ) -> None:
        super().__init__()
        rotated = rotary_dim or head_dim
        if head_dim % 2:
            raise ValueError(f"head_dim: {head_dim} is odd; rotary positions need pairs of dimensions")
        if rotated % 2 or rotated > head_dim:
            raise ValueError(f"rotary_dim: {rotated} is odd, or above head_dim {head_dim}")
        # Always on the CPU, even if modules are built on the meta device; in float32, as such models were trained.
        exponents = torch.arange(0, rotated, 2, dtype=torch.float32, device="cpu") / rotated
        frequencies = 1.0 / theta**exponents
        frequencies = frequencies if scaling is None else scaling.apply(frequencies)
        angles = torch.arange(positions, dtype=torch.float32, device="cpu")[:, None] * frequencies
        amplitude, rest = scaling.amplitude if scaling else 1.0, (0, (head_dim - rotated) // 2)
        self.register_buffer("cosines", functional.pad(angles.cos() * amplitude, rest, value=1.0), persistent=False)
        self.register_buffer("sines", functional.pad(angles.sin() * amplitude, rest), persistent=False)

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
        query, key = self.rotary(query), self.rotary(key)
        if self.late_norm and self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value
