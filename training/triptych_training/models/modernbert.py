"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, gated feed-forwards and windows of attention.

Shapes: `B` texts, `T` positions, `E` model dimensions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from triptych_training.models.attention import AttentionShape, SelfAttention
from triptych_training.models.blocks import BlockConfig, EncoderLayer, make_norm


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


POOLINGS = ("cls", "mean")


@dataclass(frozen=True)
class ModernBertConfig:
    """Everything that fixes the weights' shapes and the arithmetic; the defaults are ModernBERT-base.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    dense_norm: ClassVar[bool] = True

    vocabulary_size: int
    model_dim: int = 768
    heads: int = 12
    feedforward_dim: int = 1152
    layers: int = 22
    max_positions: int = 8192
    global_layers: tuple[int, ...] = (0, 3, 6, 9, 12, 15, 18, 21)  # those that attend to the whole text
    window: int = 64  # positions to either side that the other layers attend to
    global_theta: float = 160_000.0
    local_theta: float = 10_000.0
    activation: str = "gelu"
    attention_bias: bool = False
    feedforward_bias: bool = False
    norm_bias: bool = False
    dropout: float = 0.0
    norm_epsilon: float = 1e-5
    pad_id: int = 50283
    cls_id: int = 50281
    sep_id: int = 50282
    mask_id: int = 50284
    head_activation: str = "gelu"
    head_bias: bool = False
    projection_bias: bool = True
    tied: bool = True
    pooling: str = "cls"  # of a text's states, before its labels

    def __post_init__(self) -> None:
        object.__setattr__(self, "global_layers", tuple(self.global_layers))
        for name, lowest in (("vocabulary_size", 1), ("layers", 1), ("max_positions", 4), ("window", 0)):
            if getattr(self, name) < lowest:
                raise ValueError(f"{name}: {getattr(self, name)} is below {lowest}")
        for name in ("pad_id", "cls_id", "sep_id", "mask_id"):
            if not 0 <= getattr(self, name) < self.vocabulary_size:
                raise ValueError(f"{name}: {getattr(self, name)} is outside the vocabulary of {self.vocabulary_size}")
        if wrong := [layer for layer in self.global_layers if not 0 <= layer < self.layers]:
            raise ValueError(f"global_layers: {wrong[0]} is none of the {self.layers} layers")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling: {self.pooling!r} is unknown; choose one of {', '.join(POOLINGS)}")
        _ = self.block, replace(self.block, activation=self.head_activation)

    @property
    def block(self) -> BlockConfig:
        """One layer, but for its attention's biases."""
        return BlockConfig(
            self.model_dim,
            self.heads,
            self.feedforward_dim,
            norm="pre",
            activation=self.activation,
            dropout=self.dropout,
            norm_epsilon=self.norm_epsilon,
            bias=self.feedforward_bias,
            norm_bias=self.norm_bias,
            gated=True,
        )

    @property
    def pooler_activation(self) -> str:
        """The same in all heads."""
        return self.head_activation


class ModernBertLayer(EncoderLayer):
    """Rotary attention, to the whole text or to a window, and a gated feed-forward; the first layer's input has its norm."""

    def __init__(self, config: ModernBertConfig, rotary: Rotary, first: bool) -> None:
        super().__init__(config.block)
        self.attention = RotaryAttention(replace(config.block.attention, bias=config.attention_bias), rotary)
        if first:
            self.attention_residual.norm = nn.Identity()


class ModernBertEmbedding(nn.Module):
    """Tokens, normalised."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary_size, config.model_dim, padding_idx=config.pad_id)
        self.norm = make_norm(config.block)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` ids -> `[B, T, E]`; there are no segments."""
        y: Tensor = self.dropout(self.norm(self.tokens(ids)))
        return y


class ModernBert(nn.Module):
    """The encoder."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.config = config
        head_dim = config.block.attention.head_dim
        self.embedding = ModernBertEmbedding(config)
        self.everywhere = Rotary(config.max_positions, head_dim, config.global_theta)
        self.nearby = Rotary(config.max_positions, head_dim, config.local_theta)
        self.layers = nn.ModuleList(
            ModernBertLayer(config, self.everywhere if layer in config.global_layers else self.nearby, layer == 0)
            for layer in range(config.layers)
        )
        self.norm = make_norm(config.block)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> hidden states `[B, T, E]`; padding is masked out."""
        inside = (ids != self.config.pad_id)[:, None, None, :]
        near = window_mask(ids.shape[1], self.config.window, ids.device)
        # Padding attends to itself at least: a row without a choice would be no number, which masks cannot take away again.
        local = near & (inside | torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device))
        x = self.embedding(ids, segments)
        for index, layer in enumerate(self.layers):
            x = layer(x, inside if index in self.config.global_layers else local)
        y: Tensor = self.norm(x)
        return y


def window_mask(length: int, window: int, device: torch.device | None = None) -> Tensor:
    """`[length, length]` bool: positions at most `window` apart."""
    places = torch.arange(length, device=device)
    return (places[:, None] - places[None, :]).abs() <= window
