"""The encoder-decoder Transformer (Vaswani et al. 2017), readable first.

Shapes: `B` sentences, `S` source positions, `T` target positions, `E` model dimensions, `H` heads of `D`, `V` tokens.
`norm="post"` is the paper's order (normalise after the residual sum); `norm="pre"` normalises the sub-layer's input and
adds one final norm (Xiong et al. 2020), which trains without a long warm-up.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych_training.attention import CrossAttention, KeyValues, SelfAttention
from triptych_training.blocks import BlockConfig, EncoderLayer, FeedForward, Residual
from triptych_training.positions import POSITIONS, make_positions


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that fixes the weights' shapes and the arithmetic.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    vocabulary_size: int
    model_dim: int = 512
    heads: int = 8
    feedforward_dim: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    norm: str = "post"
    activation: str = "relu"
    positions: str = "sinusoidal"
    max_positions: int = 512  # longest source or target, in tokens
    tie_embeddings: bool = True  # source, target and output share one matrix (Press and Wolf 2017)
    dropout: float = 0.1
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is below 1")
        if self.max_positions < 2:
            raise ValueError(f"max_positions: {self.max_positions} is below 2, a token and the end of the sentence")
        if self.positions not in POSITIONS:
            raise ValueError(f"positions: {self.positions!r} is unknown; choose one of {', '.join(POSITIONS)}")
        _ = self.block
        for name in ("pad_id", "bos_id", "eos_id"):
            if not 0 <= getattr(self, name) < self.vocabulary_size:
                raise ValueError(f"{name}: {getattr(self, name)} is outside the vocabulary of {self.vocabulary_size}")
        if len({self.pad_id, self.bos_id, self.eos_id}) < 3:
            raise ValueError(f"pad_id, bos_id, eos_id: {self.pad_id}, {self.bos_id}, {self.eos_id} are not three different ids")

    @property
    def block(self) -> BlockConfig:
        """One layer."""
        return BlockConfig(self.model_dim, self.heads, self.feedforward_dim, self.norm, self.activation, self.dropout)


class DecoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.model_dim, config.heads)
        self.attention_residual = Residual(config.block)
        self.cross_attention = CrossAttention(config.model_dim, config.heads)
        self.cross_attention_residual = Residual(config.block)
        self.feedforward = FeedForward(config.block)
        self.feedforward_residual = Residual(config.block)

    def forward(self, x: Tensor, memory: KeyValues, mask: Tensor | None) -> Tensor:
        x = self.attention_residual.leave(x, self.attention(self.attention_residual.enter(x), causal=True))
        return self.after_attention(x, memory, mask)

    def step(self, x: Tensor, memory: KeyValues, mask: Tensor | None, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """One position: `x` is `[B, 1, E]`; returns its output and the grown self-attention cache."""
        y, present = self.attention.step(self.attention_residual.enter(x), past)
        return self.after_attention(self.attention_residual.leave(x, y), memory, mask), present

    def after_attention(self, x: Tensor, memory: KeyValues, mask: Tensor | None) -> Tensor:
        residual = self.cross_attention_residual
        x = residual.leave(x, self.cross_attention(residual.enter(x), memory, mask))
        return self.feedforward_residual.leave(x, self.feedforward(self.feedforward_residual.enter(x)))


class Embedding(nn.Module):
    """Token vectors scaled by sqrt(E), plus positions, plus dropout (sections 3.4, 3.5)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary_size, config.model_dim, padding_idx=config.pad_id)
        self.positions = make_positions(config.positions, config.max_positions, config.model_dim)
        self.scale = math.sqrt(config.model_dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """`[B, T]` ids at positions `start`... -> `[B, T, E]`."""
        return self.at(ids, self.positions.weight[start : start + ids.shape[1]])

    def at(self, ids: Tensor, positions: Tensor) -> Tensor:
        """`[B, T]` ids with their position vectors, broadcastable to `[B, T, E]`."""
        x: Tensor = self.dropout(self.tokens(ids) * self.scale + positions)
        return x


class Encoder(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(EncoderLayer(config.block) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.model_dim) if config.norm == "pre" else nn.Identity()

    def forward(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, S]` ids -> `[B, S, E]`; `mask` `[B, 1, 1, S]` is False on padding."""
        x: Tensor = self.embedding(source)
        for layer in self.layers:
            x = layer(x, mask)
        normed: Tensor = self.norm(x)
        return normed


class Decoder(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.model_dim) if config.norm == "pre" else nn.Identity()

    def project_memory(self, memory: Tensor) -> list[KeyValues]:
        """Cross-attention keys and values of every layer, computed once a sentence."""
        return [layer.cross_attention.project_memory(memory) for layer in self._layers()]

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Teacher forcing: `[B, T]` ids -> hidden states `[B, T, E]`."""
        x: Tensor = self.embedding(target)
        for layer, keys_values in zip(self.layers, self.project_memory(memory), strict=True):
            x = layer(x, keys_values, mask)
        normed: Tensor = self.norm(x)
        return normed

    def step(
        self, tokens: Tensor, position: int, memory: list[KeyValues], mask: Tensor | None, past: list[KeyValues] | None
    ) -> tuple[Tensor, list[KeyValues]]:
        """One step of every row: `tokens` `[B, 1]` at `position` -> hidden `[B, 1, E]` and the grown caches."""
        x = self.embedding(tokens, position)
        present = []
        for index, layer in enumerate(self._layers()):
            x, keys_values = layer.step(x, memory[index], mask, past[index] if past else None)
            present.append(keys_values)
        return self.norm(x), present

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class Transformer(nn.Module):
    """Encoder, decoder and output projection; `forward` is the teacher-forced training pass."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = nn.Linear(config.model_dim, config.vocabulary_size, bias=False)
        self.apply(_initialise)
        if config.tie_embeddings:
            self.decoder.embedding.tokens.weight = self.encoder.embedding.tokens.weight
            self.projection.weight = self.encoder.embedding.tokens.weight

    def source_mask(self, source: Tensor) -> Tensor:
        """`[B, S]` ids -> `[B, 1, 1, S]`, False on padding."""
        return (source != self.config.pad_id)[:, None, None, :]

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """Decoder states `[B, T, E]` for target input ids `[B, T]` (which start with `bos_id`)."""
        mask = self.source_mask(source)
        hidden: Tensor = self.decoder(target, self.encoder(source, mask), mask)
        return hidden

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits `[B, T, V]` of the token after each target position."""
        logits: Tensor = self.projection(self.hidden(source, target))
        return logits


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        if module.padding_idx is not None:
            module.weight[module.padding_idx].zero_()
