"""Decoder-only Transformers: GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023), LFM2, and their relatives.

Shapes: `B` texts, `T` positions, `E` model dimensions, `V` tokens. The defaults are the modern form: RMS norm (Zhang and
Sennrich 2019), rotary positions (Su et al. 2021), a gated feed-forward with SiLU (Shazeer 2020) and no biases.
`GPT2` has the members of the classic one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least, one_of
from triptych_training.models.attention import AttentionShape, SelfAttention, SlopedAttention, limit_softly
from triptych_training.models.blocks import BlockConfig, EncoderLayer, make_norm
from triptych_training.models.convolution import ShortConvolution
from triptych_training.models.positions import LearnedPositions
from triptych_training.models.rotary import Rotary, RotaryAttention, RotaryScaling

ROTARY, LEARNED, SLOPES = "rotary", "learned", "slopes"  # the last one: see SlopedAttention
GPT2: Mapping[str, Any] = {
    "positions": LEARNED,
    "norm_kind": "layer",
    "activation": "gelu_tanh",
    "gated": False,
    "bias": True,
    "input_bias": True,
    "output_bias": True,
}


@dataclass(frozen=True)
class GptConfig:
    """Shapes of the weights and options of the arithmetic; raises ValueError if a field is out of range."""

    vocabulary_size: int
    model_dim: int = 512
    heads: int = 8
    kv_heads: int = 0  # heads of keys and values, each for several of the queries'; 0: heads
    head_dim: int = 0  # 0: model_dim / heads
    feedforward_dim: int = 1408
    layers: int = 8
    max_positions: int = 1024
    positions: str = ROTARY
    theta: float = 10_000.0  # base of the rotary frequencies
    scaling: RotaryScaling | None = None
    local_theta: float = 0.0  # base in the layers of `window_layers`, without scaling; 0: `theta`, with scaling
    rotary_dim: int = 0  # dimensions of a head that are rotated, the first ones of its two halves; 0: all
    unrotated_layers: tuple[int, ...] = ()  # layers without rotary positions
    window: int = 0  # positions that the layers of `window_layers` attend to, their own included; 0: all
    window_layers: tuple[int, ...] = ()
    bidirectional: bool = False  # positions also attend to those after them; `window` counts in both directions then
    norm_kind: str = "rms"
    norm_epsilon: float = 1e-5
    norm_bias: bool = True  # layer norm only
    activation: str = "silu"
    gated: bool = True
    bias: bool = False  # of the feed-forward network
    input_bias: bool = False  # of the projection to queries, keys and values
    output_bias: bool = False  # of attention's other projection
    qk_norm: bool = False  # RMS norm of each head's queries and keys, before their rotation
    whole_norm: bool = False  # that norm is of all heads together
    late_norm: bool = False  # that norm is after the rotation
    attention_scale: float = 0.0  # factor on the attention scores; 0: 1 / sqrt(head_dim)
    attention_cap: float = 0.0  # soft limit of the attention scores; 0: none
    logit_cap: float = 0.0  # the same of the logits
    input_norm: bool = True  # normalise the inputs of sub-layers
    output_norm: bool = False  # normalise their outputs
    embedding_scale: float = 1.0  # factor on the embeddings, but not on the output matrix
    embedding_norm: bool = False  # normalise the embeddings
    convolution_layers: tuple[int, ...] = ()  # layers with a short convolution instead of attention
    convolution_reach: int = 3  # positions that it reads, the own included
    convolution_bias: bool = False
    parallel: bool = False  # attention and feed-forward network read the same input (Wang and Komatsuzaki 2021)
    projection_bias: bool = False  # of the output matrix
    tied: bool = True  # embedding and output share one matrix
    outputs: int = 0  # tokens that can follow, the first ones of the vocabulary; 0: all
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.scaling, Mapping):  # as in a checkpoint's config.json
            object.__setattr__(self, "scaling", RotaryScaling(**self.scaling))
        at_least(1, self, "vocabulary_size", "layers", "convolution_reach")
        at_least(2, self, "max_positions")
        at_least(0, self, "kv_heads", "window", "outputs", "rotary_dim")
        at_least(0, self, "local_theta", "attention_scale", "attention_cap", "logit_cap")
        one_of((ROTARY, LEARNED, SLOPES), self, "positions")
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads: {self.kv_heads} does not divide heads {self.heads}")
        if self.outputs > self.vocabulary_size or (self.tied and self.outputs not in (0, self.vocabulary_size)):
            raise ValueError(f"outputs: {self.outputs} does not fit a vocabulary of {self.vocabulary_size}")
        for name in ("window_layers", "unrotated_layers", "convolution_layers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if wrong := [layer for layer in getattr(self, name) if not 0 <= layer < self.layers]:
                raise ValueError(f"{name}: {wrong[0]} is none of the {self.layers} layers")
        if self.late_norm and self.whole_norm:
            raise ValueError("late_norm: with whole_norm, it is not supported")
        if self.bidirectional and self.convolution_layers:
            raise ValueError("convolution_layers: in a bidirectional model, they are not supported")
        _ = self.block

    @property
    def block(self) -> BlockConfig:
        """Configuration of one layer, except for its attention."""
        return BlockConfig.of(self, norm="pre")

    @property
    def attention(self) -> AttentionShape:
        """Shape of a layer's attention."""
        return AttentionShape(
            self.model_dim,
            self.heads,
            self.head_dim or self.model_dim // self.heads,
            self.output_bias,
            input_bias=self.input_bias,
            kv_heads=self.kv_heads,
            norm_epsilon=self.norm_epsilon if self.qk_norm else None,
            whole_norm=self.whole_norm,
        )

    @property
    def output_count(self) -> int:
        """Width of the logits."""
        return self.outputs or self.vocabulary_size


class GptLayer(EncoderLayer):
    """Causal self-attention and feed-forward network; `window` positions are visible, 0: all that came before.

    With `convolves`, there is a short convolution instead of attention.
    """

    def __init__(self, config: GptConfig, rotary: Rotary | None, window: int, convolves: bool) -> None:
        super().__init__(config.block)
        self.convolution: ShortConvolution | None = None
        self.window, self.parallel = window, config.parallel
        if convolves:
            self.convolution = ShortConvolution(config.model_dim, config.convolution_reach, config.convolution_bias)
            del self.attention
            return
        shape = config.attention
        plain = SlopedAttention if config.positions == SLOPES else SelfAttention
        self.attention = plain(shape) if rotary is None else RotaryAttention(shape, rotary)
        self.attention.dropout = config.dropout
        self.attention.scale, self.attention.cap = config.attention_scale or shape.scale, config.attention_cap
        self.attention.late_norm = config.late_norm and rotary is not None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `mask` `[T, T]` is True where a position sees another one, None: all before it."""
        entered = self.attention_residual.enter(x)
        if self.convolution is not None:
            return self.finish(x, self.convolution(entered))
        return self.finish(x, self.attention(entered, mask, causal=mask is None))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Compute what follows attention: `x` is the layer's input, `attended` the output of attention or the convolution."""
        y = self.attention_residual.leave(x, attended)
        return self.feedforward_residual.leave(y, self.feedforward(self.feedforward_residual.enter(x if self.parallel else y)))


class Gpt(nn.Module):
    """Decoder-only Transformer: `forward` gives the logits of the token after each position."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        rotary = local = None
        if config.positions == ROTARY:
            sizes = config.max_positions, config.attention.head_dim
            rotary = local = Rotary(*sizes, config.theta, config.scaling, config.rotary_dim)
            if config.local_theta:
                local = Rotary(*sizes, config.local_theta, rotary_dim=config.rotary_dim)
        self.tokens = nn.Embedding(config.vocabulary_size, config.model_dim)
        self.embedding_norm = make_norm(config.block) if config.embedding_norm else nn.Identity()
        learned = config.positions == LEARNED
        self.positions = LearnedPositions(config.max_positions, config.model_dim) if learned else None
        self.dropout = nn.Dropout(config.dropout)
        windows = [config.window if layer in config.window_layers else 0 for layer in range(config.layers)]
        rotations = [local if layer in config.window_layers else rotary for layer in range(config.layers)]
        rotations = [None if layer in config.unrotated_layers else each for layer, each in enumerate(rotations)]
        convolved = [layer in config.convolution_layers for layer in range(config.layers)]
        self.layers = nn.ModuleList(GptLayer(config, *each) for each in zip(rotations, windows, convolved, strict=True))
        self.norm = make_norm(config.block)
        self.projection = nn.Linear(config.model_dim, config.output_count, config.projection_bias)
        if config.tied:
            self.projection.weight = self.tokens.weight
        self._initialise()

    def embed(self, ids: Tensor) -> Tensor:
        """`[B, T]` ids -> scaled embeddings `[B, T, E]`."""
        x: Tensor = self.tokens(ids)
        return self.embedding_norm(x if self.config.embedding_scale == 1.0 else x * self.config.embedding_scale)

    def hidden(self, ids: Tensor) -> Tensor:
        """`[B, T]` ids -> states `[B, T, E]`."""
        length = ids.shape[1]
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions.weight[:length]
        x = self.dropout(x)
        windows = {layer.window for layer in self.blocks}
        masks = {window: visible(length, window, ids.device, self.config.bidirectional) for window in windows}
        for layer in self.blocks:
            x = layer(x, masks[layer.window])
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """`[B, T]` ids -> logits `[B, T, V]`."""
        return limit_softly(self.projection(self.hidden(ids)), self.config.logit_cap)

    def losses(self, ids: Tensor, smoothing: float) -> Tensor:
        """`[B, T + 1]` -> sum of T cross-entropies: of a token by those before it."""
        logits = self(ids[:, :-1]).flatten(0, 1).float()
        return functional.cross_entropy(logits, ids[:, 1:].flatten(), label_smoothing=smoothing, reduction="sum")

    @property
    def blocks(self) -> list[GptLayer]:
        """The layers, by their type."""
        return [layer for layer in self.layers if isinstance(layer, GptLayer)]

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draw weights as GPT-2: projections onto the residual stream are smaller the more layers there are."""
        mixers = [layer.attention if layer.convolution is None else layer.convolution for layer in self.blocks]
        onto = {
            id(p.weight) for p in (*(each.output for each in mixers), *(layer.feedforward.contract for layer in self.blocks))
        }
        for module in self.modules():
            if isinstance(module, ShortConvolution):
                nn.init.normal_(module.weight, std=module.reach**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            if isinstance(module, nn.Linear | nn.Embedding):
                deviation = 0.02 * ((2 * self.config.layers) ** -0.5 if id(module.weight) in onto else 1.0)
                nn.init.normal_(module.weight, std=deviation)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def visible(length: int, window: int, device: torch.device, bidirectional: bool = False) -> Tensor | None:
    """`[length, length]`, True where a position sees another: less than `window` before it, 0: any; or after it, too.

    None: itself and all before it.
    """
    if not bidirectional and not 0 < window < length:
        return None
    positions = torch.arange(length, device=device)
    distances = positions[:, None] - positions
    if bidirectional:
        return distances.abs() < (window or length)
    return (distances >= 0) & (distances < window)
