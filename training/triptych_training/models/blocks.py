"""Layers shared by all models: feed-forward network, residual connection, encoder layer.

`norm="post"` normalises after the residual sum (Vaswani et al. 2017; BERT). `norm="pre"` normalises the sub-layer's input
(Xiong et al. 2020; ViT) and needs a final norm after the last layer.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least, fraction, one_of
from triptych_training.models.attention import AttentionShape, SelfAttention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # Hendrycks and Gimpel 2016, the approximation
    "silu": functional.silu,
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),  # the same paper's simpler approximation
    "relu_squared": lambda x: functional.relu(x).square(),  # So et al. 2021
}
XIELU = "xielu"
NORM_ORDERS = ("pre", "post")
NORM_KINDS = ("layer", "rms")  # Ba et al. 2016; Zhang and Sennrich 2019 (no mean, no bias)


@dataclass(frozen=True)
class BlockConfig:
    """Shape and options of one layer; raises ValueError if a field is out of range."""

    model_dim: int
    heads: int
    feedforward_dim: int
    norm: str = "post"
    activation: str = "relu"
    dropout: float = 0.0
    norm_epsilon: float = 1e-5
    drop_path: float = 0.0  # probability that a sample skips a sub-layer (stochastic depth; Huang et al. 2016)
    head_dim: int = 0  # 0: model_dim / heads
    bias: bool = True  # all projections
    norm_kind: str = "layer"
    norm_bias: bool = True  # layer norm only
    gated: bool = False  # multiply the feed-forward's activations by a second projection (Shazeer 2020)
    scaled: bool = True  # divide attention scores by sqrt(head_dim); T5 does not
    input_bias: bool = True  # bias of self-attention's projection to queries, keys and values; ignored without `bias`
    input_norm: bool = True  # normalise the inputs of sub-layers; ignored with norm "post"
    output_norm: bool = False  # normalise the outputs of sub-layers before they are added (Gemma Team 2024)

    def __post_init__(self) -> None:
        at_least(1, self, "model_dim", "heads", "feedforward_dim")
        at_least(0, self, "head_dim", "norm_epsilon")
        if not self.head_dim and self.model_dim % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide model_dim {self.model_dim}")
        one_of(NORM_ORDERS, self, "norm")
        one_of((*ACTIVATIONS, XIELU), self, "activation")
        one_of(NORM_KINDS, self, "norm_kind")
        fraction(self, "dropout", "drop_path")

    @classmethod
    def of(cls, config: Any, **changes: Any) -> "BlockConfig":
        """Configure a layer by the fields of a model's configuration that have the same names, apart from `changes`."""
        shared = {each.name for each in fields(config)} & {each.name for each in fields(cls)}
        return cls(**{**{name: getattr(config, name) for name in shared}, **changes})

    @property
    def attention(self) -> AttentionShape:
        """Shape of the layer's attention modules."""
        head_dim = self.head_dim or self.model_dim // self.heads
        return AttentionShape(self.model_dim, self.heads, head_dim, self.bias, self.scaled, self.bias and self.input_bias)


class PlainHeads:
    """Options of the heads of text encoders that only ModernBERT and decoder-only models vary; for the other configurations."""

    head_bias: ClassVar[bool] = True
    norm_bias: ClassVar[bool] = True
    projection_bias: ClassVar[bool] = True
    dense_norm: ClassVar[bool] = False
    masked_dense: ClassVar[bool] = True
    dense: ClassVar[bool] = True
    classifier_bias: ClassVar[bool] = True
    pooling: ClassVar[str] = "cls"


@dataclass(frozen=True)
class ImageModelConfig:
    """Fields that ViT, Swin and PVT share; a subclass checks them by calling `check`."""

    classes: int
    image_size: int = 224  # height in pixels; also the width unless image_width is set
    patch_size: int = 16  # height in pixels; also the width unless patch_width is set
    channels: int = 3
    dropout: float = 0.0
    drop_path: float = 0.0  # probability at the last layer; rises linearly from 0 at the first
    norm_epsilon: float = 1e-6
    image_width: int = 0
    patch_width: int = 0
    activation: str = "gelu"
    input_bias: bool = True  # bias of attention's projection to queries, keys and values

    def check(self) -> None:
        """Raise ValueError if a field is out of range."""
        at_least(1, self, "classes", "image_size", "patch_size", "channels")
        at_least(0, self, "image_width", "patch_width")
        fraction(self, "drop_path")

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of an image, in pixels."""
        return self.image_size, self.image_width or self.image_size

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch, in pixels."""
        return self.patch_size, self.patch_width or self.patch_size

    def layer_block(self, model_dim: int, heads: int, feedforward_dim: int, depth: float) -> BlockConfig:
        """Configure a layer at the relative depth `depth`, 0 to 1."""
        sizes = {"model_dim": model_dim, "heads": heads, "feedforward_dim": feedforward_dim}
        return BlockConfig.of(self, **sizes, norm="pre", drop_path=self.drop_path * depth)


def make_norm(config: BlockConfig) -> nn.Module:
    """Build the norm over the last dimension."""
    if config.norm_kind == "rms":
        return nn.RMSNorm(config.model_dim, eps=config.norm_epsilon)
    return nn.LayerNorm(config.model_dim, eps=config.norm_epsilon, bias=config.norm_bias)


class TokenEmbedding(nn.Module):
    """Token vectors without positions or segments, projected if they are not as wide as the model, and normalised."""

    def __init__(self, config: BlockConfig, vocabulary_size: int, pad_id: int, width: int = 0) -> None:
        super().__init__()
        width = width or config.model_dim
        self.tokens = nn.Embedding(vocabulary_size, width, padding_idx=pad_id)
        self.projection = nn.Identity() if width == config.model_dim else nn.Linear(width, config.model_dim, bias=False)
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` ids -> `[B, T, E]`; `segments` is ignored."""
        return self.dropout(self.norm(self.projection(self.tokens(ids))))


class Xielu(nn.Module):
    """Activation with trained factors (Huang and Schlag 2024): quadratic above 0, and below it exponential."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = nn.Parameter(torch.full((1,), 0.8)), nn.Parameter(torch.full((1,), 0.8))

    def forward(self, x: Tensor) -> Tensor:
        small = (torch.expm1(x.clamp(max=0.0)) - x) * self.below
        return torch.where(x > 0, self.above * x.square(), small) + 0.5 * x


class FeedForward(nn.Module):
    """Position-wise feed-forward network: expand, activate, contract (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.activation = Xielu() if config.activation == XIELU else ACTIVATIONS[config.activation]
        self.gate = nn.Linear(config.model_dim, config.feedforward_dim, config.bias) if config.gated else None
        self.expand = nn.Linear(config.model_dim, config.feedforward_dim, config.bias)
        self.contract = nn.Linear(config.feedforward_dim, config.model_dim, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.expand(x)) if self.gate is None else self.activation(self.gate(x)) * self.expand(x)
        return self.contract(inner)


class Residual(nn.Module):
    """Residual connection around a sub-layer, with dropout and a norm before (`pre`) or after (`post`) it."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.norm = make_norm(config) if config.input_norm or not self.pre_norm else nn.Identity()
        self.output_norm = make_norm(config) if config.output_norm else None
        self.dropout = nn.Dropout(config.dropout)
        self.drop_path = config.drop_path

    def enter(self, x: Tensor) -> Tensor:
        """Return the sub-layer's input."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the sub-layer's output `y` to its input `x`."""
        y = y if self.output_norm is None else self.output_norm(y)
        total = x + self._drop_samples(self.dropout(y))
        return total if self.pre_norm else self.norm(total)

    def around(self, x: Tensor, sublayer: nn.Module) -> Tensor:
        """Apply the connection around a whole sub-layer."""
        return self.leave(x, sublayer(self.enter(x)))

    def _drop_samples(self, y: Tensor) -> Tensor:
        """Zero whole samples of `[B, T, E]` at random and scale up the others (stochastic depth)."""
        if not (self.training and self.drop_path):
            return y
        keep = 1.0 - self.drop_path
        mask = torch.empty(y.shape[0], 1, 1, device=y.device, dtype=y.dtype).bernoulli_(keep)
        return y * mask / keep


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward network, each with a residual connection."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.attention)
        self.attention_residual = Residual(config)
        self.feedforward = FeedForward(config)
        self.feedforward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `mask` as in SelfAttention."""
        x = self.attention_residual.leave(x, self.attention(self.attention_residual.enter(x), mask))
        return self.feedforward_residual.around(x, self.feedforward)
