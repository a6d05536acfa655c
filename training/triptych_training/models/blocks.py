"""The layers that all models share: feed-forward, residual frame, encoder block.

`norm="post"` is the order of Vaswani et al. 2017 and of BERT (normalise after the residual sum); `norm="pre"` normalises the
sub-layer's input (Xiong et al. 2020; ViT) and wants one final norm behind the last layer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.models.attention import AttentionShape, SelfAttention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # Hendrycks and Gimpel 2016, the approximation
    "silu": functional.silu,
}
NORM_ORDERS = ("pre", "post")
NORM_KINDS = ("layer", "rms")  # Ba et al. 2016; Zhang and Sennrich 2019, without mean and bias


@dataclass(frozen=True)
class BlockConfig:
    """Shape and arithmetic of one layer.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    model_dim: int
    heads: int
    feedforward_dim: int
    norm: str = "post"
    activation: str = "relu"
    dropout: float = 0.0
    norm_epsilon: float = 1e-5
    drop_path: float = 0.0  # probability that a sample skips a sub-layer (stochastic depth; Huang et al. 2016)
    head_dim: int = 0  # 0: model_dim / heads
    bias: bool = True  # of all projections
    norm_kind: str = "layer"
    norm_bias: bool = True  # of a layer norm
    gated: bool = False  # the feed-forward multiplies by a second projection (Shazeer 2020)
    scaled: bool = True  # attention divides by sqrt(head_dim); T5 does not
    input_bias: bool = True  # of self-attention's projection to queries, keys and values; where `bias` is set

    def __post_init__(self) -> None:
        for name in ("model_dim", "heads", "feedforward_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        if self.head_dim < 0:
            raise ValueError(f"head_dim: {self.head_dim} is below 0")
        if not self.head_dim and self.model_dim % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide model_dim {self.model_dim}")
        for name, choices in (("norm", NORM_ORDERS), ("activation", ACTIVATIONS), ("norm_kind", NORM_KINDS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: {getattr(self, name)!r} is unknown; choose one of {', '.join(choices)}")
        for name in ("dropout", "drop_path"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name}: {getattr(self, name)} is outside [0, 1)")

    @property
    def attention(self) -> AttentionShape:
        """What its attentions are made from."""
        head_dim = self.head_dim or self.model_dim // self.heads
        return AttentionShape(self.model_dim, self.heads, head_dim, self.bias, self.scaled, self.input_bias)


def make_norm(config: BlockConfig) -> nn.Module:
    """A norm over the last dimension."""
    if config.norm_kind == "rms":
        return nn.RMSNorm(config.model_dim, eps=config.norm_epsilon)
    return nn.LayerNorm(config.model_dim, eps=config.norm_epsilon, bias=config.norm_bias)


class FeedForward(nn.Module):
    """Position-wise: expand, activate, contract (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gate = nn.Linear(config.model_dim, config.feedforward_dim, config.bias) if config.gated else None
        self.expand = nn.Linear(config.model_dim, config.feedforward_dim, config.bias)
        self.contract = nn.Linear(config.feedforward_dim, config.model_dim, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.expand(x)) if self.gate is None else self.activation(self.gate(x)) * self.expand(x)
        y: Tensor = self.contract(inner)
        return y


class Residual(nn.Module):
    """The frame around every sub-layer: residual sum, dropout and layer norm in either order."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.drop_path = config.drop_path

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        y: Tensor = self.norm(x) if self.pre_norm else x
        return y

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """What the next sub-layer gets: `x` went in, `y` came out."""
        total: Tensor = x + self._thin(self.dropout(y))
        if not self.pre_norm:
            total = self.norm(total)
        return total

    def _thin(self, y: Tensor) -> Tensor:
        """Drop whole samples of `[B, T, E]`, and make up for it in those that stay."""
        if not (self.training and self.drop_path):
            return y
        keep = 1.0 - self.drop_path
        mask = torch.empty(y.shape[0], 1, 1, device=y.device, dtype=y.dtype).bernoulli_(keep)
        return y * mask / keep


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in its residual frame."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.attention)
        self.attention_residual = Residual(config)
        self.feedforward = FeedForward(config)
        self.feedforward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `mask` as SelfAttention has it."""
        x = self.attention_residual.leave(x, self.attention(self.attention_residual.enter(x), mask))
        return self.feedforward_residual.leave(x, self.feedforward(self.feedforward_residual.enter(x)))
