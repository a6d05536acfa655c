"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, gated feed-forwards and windows of attention.

Shapes: `B` texts, `T` positions, `E` model dimensions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least, one_of, token_id
from triptych_training.models.blocks import BlockConfig, EncoderLayer, TokenEmbedding, make_norm
from triptych_training.models.rotary import Rotary, RotaryAttention

POOLINGS = ("cls", "mean")


@dataclass(frozen=True)
class ModernBertConfig:
    """Shapes of weights and options of arithmetic; defaults: ModernBERT-base. Raises ValueError if a field is out of range."""

    dense_norm: ClassVar[bool] = True
    masked_dense: ClassVar[bool] = True
    dense: ClassVar[bool] = True
    classifier_bias: ClassVar[bool] = True

    vocabulary_size: int
    model_dim: int = 768
    heads: int = 12
    feedforward_dim: int = 1152
    layers: int = 22
    max_positions: int = 8192
    global_layers: tuple[int, ...] = (0, 3, 6, 9, 12, 15, 18, 21)  # layers that attend to the whole text
    window: int = 64  # positions on either side that the other layers attend to
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
    pooling: str = "cls"  # of the states, for text classification

    def __post_init__(self) -> None:
        object.__setattr__(self, "global_layers", tuple(self.global_layers))
        at_least(1, self, "vocabulary_size", "layers")
        at_least(4, self, "max_positions")
        at_least(0, self, "window")
        token_id(self.vocabulary_size, self, "pad_id", "cls_id", "sep_id", "mask_id")
        if wrong := [layer for layer in self.global_layers if not 0 <= layer < self.layers]:
            raise ValueError(f"global_layers: {wrong[0]} is none of the {self.layers} layers")
        one_of(POOLINGS, self, "pooling")
        _ = self.block, replace(self.block, activation=self.head_activation)

    @property
    def block(self) -> BlockConfig:
        """Configuration of one layer, except for the biases of its attention."""
        return BlockConfig.of(self, norm="pre", bias=self.feedforward_bias, gated=True)

    @property
    def pooler_activation(self) -> str:
        """Activation of the pooler, the same as in the other heads."""
        return self.head_activation


class ModernBertLayer(EncoderLayer):
    """Encoder layer with rotary attention; the first layer has no norm of its own because its input is normalised."""

    def __init__(self, config: ModernBertConfig, rotary: Rotary, first: bool) -> None:
        super().__init__(config.block)
        shape = replace(config.block.attention, bias=config.attention_bias, input_bias=config.attention_bias)
        self.attention = RotaryAttention(shape, rotary)
        if first:
            self.attention_residual.norm = nn.Identity()


class ModernBert(nn.Module):
    """ModernBERT's encoder."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.config = config
        head_dim = config.block.attention.head_dim
        self.embedding = TokenEmbedding(config.block, config.vocabulary_size, config.pad_id)
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
        positions = torch.arange(ids.shape[1], device=ids.device)
        near = (positions[:, None] - positions).abs() <= self.config.window
        # Padding attends at least to itself: a softmax over no positions would be NaN, which no later mask removes.
        local = near & (inside | torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device))
        x = self.embedding(ids, segments)
        for index, layer in enumerate(self.layers):
            x = layer(x, inside if index in self.config.global_layers else local)
        return self.norm(x)
