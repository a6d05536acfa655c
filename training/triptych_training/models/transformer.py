"""The encoder-decoder Transformer (Vaswani et al. 2017).

Shapes: `B` sentences, `S` source positions, `T` target positions, `E` model dimensions, `H` heads of `D`, `V` tokens.
`norm="post"` is the paper's order; `norm="pre"` (Xiong et al. 2020) trains without a long warm-up. The other options of the
configuration describe BART (Lewis et al. 2019), M2M-100 (Fan et al. 2020), Marian's models and T5 (Raffel et al. 2020).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least, one_of, token_id
from triptych_training.models.attention import CrossAttention, KeyValues, SelfAttention
from triptych_training.models.blocks import BlockConfig, EncoderLayer, FeedForward, Residual, make_norm
from triptych_training.models.positions import POSITIONS, check_relative, make_positions, make_relative_bias, split_by_layer


@dataclass(frozen=True)
class TransformerConfig:
    """Shapes of the weights and options of the arithmetic; raises ValueError if a field is out of range."""

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
    bos_id: int = 1  # the decoder's first input; may equal pad_id or eos_id
    eos_id: int = 2
    tie_projection: bool | None = None  # target and output share one matrix; None: as tie_embeddings
    source_vocabulary_size: int = 0  # 0: one vocabulary; otherwise no matrix is shared with the source
    decoder_heads: int = 0  # 0: as the encoder
    decoder_feedforward_dim: int = 0  # 0: as the encoder
    head_dim: int = 0  # 0: model_dim / heads
    norm_kind: str = "layer"
    norm_epsilon: float = 1e-5
    final_norm: bool | None = None  # norm after the last layer; None: only if norm is "pre"
    bias: bool = True  # projections inside the layers
    gated: bool = False  # feed-forward network
    scaled_attention: bool = True
    scaled_embedding: bool = True  # multiply token vectors by sqrt(model_dim)
    embedding_norm: bool = False  # normalise the sum of token and position vectors
    projection_bias: bool = False
    projection_scale: float = 1.0  # factor on the last hidden states
    relative_buckets: int = 0  # buckets of T5's relative attention bias; 0: none
    relative_distance: int = 128  # tokens from which on all distances share one bucket
    relative_by_layer: bool = False  # each layer has a relative attention bias of its own; else one serves all

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "encoder_layers", "decoder_layers")
        if self.max_positions < 2:
            raise ValueError(f"max_positions: {self.max_positions} is below 2, a token and the end of the sentence")
        one_of(POSITIONS, self, "positions")
        _ = self.block, self.decoder_block
        at_least(0, self, "source_vocabulary_size")
        check_relative(self)
        token_id(self.vocabulary_size, self, "pad_id", "bos_id", "eos_id")
        sources = self.source_vocabulary_size or self.vocabulary_size
        token_id(sources, self, "pad_id", "eos_id", vocabulary="sources' vocabulary")
        if self.pad_id == self.eos_id:
            raise ValueError(f"pad_id, eos_id: both are {self.pad_id}; padding would end every sentence")

    @property
    def block(self) -> BlockConfig:
        """One layer of the encoder."""
        return BlockConfig.of(self, scaled=self.scaled_attention)

    @property
    def decoder_block(self) -> BlockConfig:
        """One layer of the decoder."""
        heads, feedforward_dim = self.decoder_heads or self.heads, self.decoder_feedforward_dim or self.feedforward_dim
        return replace(self.block, heads=heads, feedforward_dim=feedforward_dim)

    def relative_heads(self, heads: int, layers: int) -> int:
        """Count the heads of a side's relative bias."""
        return heads * layers if self.relative_by_layer else heads

    @property
    def ties_source(self) -> bool:
        """Source and target embedding share one matrix."""
        return self.tie_embeddings and not self.source_vocabulary_size

    @property
    def ties_projection(self) -> bool:
        """Target embedding and output projection share one matrix."""
        return self.tie_embeddings if self.tie_projection is None else self.tie_projection

    @property
    def ends_with_norm(self) -> bool:
        """A norm follows the last layer."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm


class DecoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        block = config.decoder_block
        self.attention = SelfAttention(block.attention)
        self.attention_residual = Residual(block)
        self.cross_attention = CrossAttention(block.attention)
        self.cross_attention_residual = Residual(block)
        self.feedforward = FeedForward(block)
        self.feedforward_residual = Residual(block)

    def forward(self, x: Tensor, memory: KeyValues, mask: Tensor | None, own: Tensor | None = None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `own` `[1, H, T, T]` is added to the self-attention's scores (None: a causal mask)."""
        residual = self.attention_residual
        x = residual.leave(x, self.attention(residual.enter(x), own, causal=own is None))
        return self.after_attention(x, memory, mask)

    def step(
        self, x: Tensor, memory: KeyValues, mask: Tensor | None, past: KeyValues | None, bias: Tensor | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Decode one position: `x` `[B, 1, E]` -> its output and the extended self-attention cache."""
        y, present = self.attention.step(self.attention_residual.enter(x), past, bias)
        return self.after_attention(self.attention_residual.leave(x, y), memory, mask), present

    def after_attention(self, x: Tensor, memory: KeyValues, mask: Tensor | None) -> Tensor:
        residual = self.cross_attention_residual
        x = residual.leave(x, self.cross_attention(residual.enter(x), memory, mask))
        return self.feedforward_residual.around(x, self.feedforward)


class Embedding(nn.Module):
    """Token vectors times sqrt(E), plus positions, then norm and dropout (sections 3.4, 3.5); most parts are optional."""

    def __init__(self, config: TransformerConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, config.model_dim, padding_idx=config.pad_id)
        self.positions = make_positions(config.positions, config.max_positions, config.model_dim)
        self.scale = math.sqrt(config.model_dim) if config.scaled_embedding else 1.0
        self.norm = make_norm(config.block) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """`[B, T]` ids at positions `start`... -> `[B, T, E]`."""
        table = self.positions
        return self.at(ids, None if table is None else table.weight[start : start + ids.shape[1]])

    def at(self, ids: Tensor, positions: Tensor | None) -> Tensor:
        """Embed `[B, T]` ids with the given position vectors, broadcastable to `[B, T, E]`."""
        x: Tensor = self.tokens(ids)
        if self.scale != 1.0:
            x = x * self.scale
        if positions is not None:
            x = x + positions
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)


class Encoder(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.source_vocabulary_size or config.vocabulary_size)
        self.heads = config.heads
        heads = config.relative_heads(self.heads, config.encoder_layers)
        self.relative = make_relative_bias(config, heads, bidirectional=True)
        self.layers = nn.ModuleList(EncoderLayer(config.block) for _ in range(config.encoder_layers))
        self.norm = make_norm(config.block) if config.ends_with_norm else nn.Identity()

    def forward(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, S]` ids -> `[B, S, E]`; `mask` `[B, 1, 1, S]` is False at padding."""
        x: Tensor = self.embedding(source)
        masks: Sequence[Tensor | None] = [mask] * len(self.layers)
        if self.relative is not None:
            bias = self.relative(source.shape[1], source.shape[1])
            bias = bias if mask is None else bias.masked_fill(~mask, float("-inf"))  # [B, H, S, S]
            masks = split_by_layer(bias, self.heads, len(self.layers))
        for layer, own in zip(self.layers, masks, strict=True):
            x = layer(x, own)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.vocabulary_size)
        self.heads = config.decoder_block.heads
        heads = config.relative_heads(self.heads, config.decoder_layers)
        self.relative = make_relative_bias(config, heads, bidirectional=False)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = make_norm(config.block) if config.ends_with_norm else nn.Identity()
        self.output_scale = config.projection_scale

    def project_memory(self, memory: Tensor) -> list[KeyValues]:
        """Project the encoder's output to every layer's cross-attention keys and values, once per sentence."""
        return [layer.cross_attention.project_memory(memory) for layer in self._layers()]

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Teacher forcing: `[B, T]` ids -> hidden states `[B, T, E]`."""
        x: Tensor = self.embedding(target)
        own = None
        if self.relative is not None:
            whole = self.relative(target.shape[1], target.shape[1])  # [1, H, T, T]
            own = whole.masked_fill(torch.ones_like(whole[0, 0], dtype=torch.bool).triu(1), float("-inf"))  # the future
        biases = split_by_layer(own, self.heads, len(self.layers))
        for layer, keys_values, bias in zip(self.layers, self.project_memory(memory), biases, strict=True):
            x = layer(x, keys_values, mask, bias)
        return self.finish(x)

    def step(
        self, tokens: Tensor, position: int, memory: list[KeyValues], mask: Tensor | None, past: list[KeyValues] | None
    ) -> tuple[Tensor, list[KeyValues]]:
        """Decode one token per row: `tokens` `[B, 1]` at `position` -> hidden `[B, 1, E]` and the extended caches."""
        x = self.embedding(tokens, position)
        bias = None if self.relative is None else self.relative(1, position + 1, position)
        biases, present = split_by_layer(bias, self.heads, len(self.layers)), []
        for index, layer in enumerate(self._layers()):
            x, keys_values = layer.step(x, memory[index], mask, past[index] if past else None, biases[index])
            present.append(keys_values)
        return self.finish(x), present

    def finish(self, x: Tensor) -> Tensor:
        """Normalise and scale the last layer's output for the projection."""
        normed: Tensor = self.norm(x)
        return normed if self.output_scale == 1.0 else normed * self.output_scale

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class Transformer(nn.Module):
    """Encoder, decoder and output projection; `forward` is the teacher-forced training pass."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = nn.Linear(config.model_dim, config.vocabulary_size, bias=config.projection_bias)
        self.apply(_initialise)
        if config.ties_source:
            self.decoder.embedding.tokens.weight = self.encoder.embedding.tokens.weight
        if config.ties_projection:
            self.projection.weight = self.decoder.embedding.tokens.weight

    def source_mask(self, source: Tensor) -> Tensor:
        """`[B, S]` ids -> `[B, 1, 1, S]`, False at padding."""
        return (source != self.config.pad_id)[:, None, None, :]

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """Decoder states `[B, T, E]` for target input ids `[B, T]` (which start with `bos_id`)."""
        mask = self.source_mask(source)
        return self.decoder(target, self.encoder(source, mask), mask)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits `[B, T, V]` of the token after each target position."""
        return self.projection(self.hidden(source, target))


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
