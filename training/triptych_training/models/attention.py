"""Multi-head attention (Vaswani et al. 2017, section 3.2); no other module defines one.

Shapes are written `[B, T, E]`: batch, positions, embedding; `H` heads of `D` dimensions each.
Projection and attention are separate methods so that export can put a fused operator with a cache between them.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from triptych_training.models.positions import falling_slopes

KeyValues = tuple[Tensor, Tensor]
SHORT = 256  # positions up to which `kernels` prefers plain operators


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[B, T, H*D]` -> `[B, H, T, D]`."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """`[B, H, T, D]` -> `[B, T, H*D]`."""
    return x.transpose(1, 2).flatten(2)


def norm_heads(x: Tensor, norm: nn.Module) -> Tensor:
    """Normalise `[B, T, H*D]` in groups of as many dimensions as the norm's weight has: those of a head, or of all heads."""
    groups = x.shape[-1] // norm.get_parameter("weight").shape[0]
    normed: Tensor = norm(torch.unflatten(x, -1, (groups, -1)))
    return normed.flatten(2)


def limit_softly(x: Tensor, cap: float) -> Tensor:
    """Keep values between -cap and cap, small ones nearly as they are (Gemma Team 2024): cap * tanh(x / cap); 0: all values."""
    return cap * torch.tanh(x / cap) if cap else x


def kernels(query: Tensor) -> AbstractContextManager[None]:
    """Choose the kernels of the attention of `query` `[B, H, T, D]`.

    The gradient of torch's fused kernel for CPUs is slow for short bfloat16 sequences: on Zen 4, at 17 positions of 128 x 5
    heads of 32 dimensions, 23 ms instead of 1.8 ms with plain operators.
    """
    plain = query.device.type == "cpu" and query.dtype == torch.bfloat16 and torch.is_grad_enabled()
    return sdpa_kernel(SDPBackend.MATH) if plain and query.shape[2] <= SHORT else nullcontext()


@dataclass(frozen=True)
class AttentionShape:
    """`heads` of `head_dim` over vectors of `model_dim`."""

    model_dim: int
    heads: int
    head_dim: int
    bias: bool = True
    scaled: bool = True  # divide the scores by sqrt(head_dim)
    input_bias: bool | None = None  # bias of the projection to queries, keys and values; None: as `bias`
    kv_heads: int = 0  # heads of keys and values, each for several of the queries' (Ainslie et al. 2023); 0: `heads`
    norm_epsilon: float | None = None  # of the RMS norm of each head's queries and keys (Henry et al. 2020); None: no norm
    whole_norm: bool = False  # that norm is of all heads together (OLMo Team 2025)

    @property
    def inner_dim(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim

    @property
    def parts(self) -> tuple[int, int, int]:
        """Widths of queries, keys and values."""
        width = (self.kv_heads or self.heads) * self.head_dim
        return self.inner_dim, width, width

    @property
    def scale(self) -> float:
        """Factor on the attention scores."""
        return self.head_dim**-0.5 if self.scaled else 1.0


class SelfAttention(nn.Module):
    """Attention of a sequence to itself; one fused projection gives queries, keys and values."""

    dropout = 0.0  # of the weights, in training
    cap = 0.0  # soft limit of the scores, see `limit_softly`; 0: none
    late_norm = False  # normalise queries and keys after their rotation, not before

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.heads, self.scale = shape.heads, shape.scale
        self.kv_heads, self.parts = shape.kv_heads or shape.heads, shape.parts
        bias = shape.bias if shape.input_bias is None else shape.input_bias
        self.query_key_value = nn.Linear(shape.model_dim, sum(shape.parts), bias)
        self.output = nn.Linear(shape.inner_dim, shape.model_dim, shape.bias)
        normed, epsilon = shape.norm_epsilon is not None, shape.norm_epsilon
        widths = shape.parts if shape.whole_norm else (shape.head_dim, shape.head_dim)
        self.query_norm = nn.RMSNorm(widths[0], epsilon) if normed else None
        self.key_norm = nn.RMSNorm(widths[1], epsilon) if normed else None

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, T, E]` -> queries, keys, values, each `[B, H, T, D]`, with `kv_heads` heads of keys and values."""
        query, key, value = self.query_key_value(x).split(self.parts, dim=-1)
        if self.query_norm is not None and self.key_norm is not None and not self.late_norm:
            query, key = norm_heads(query, self.query_norm), norm_heads(key, self.key_norm)
        return split_heads(query, self.heads), split_heads(key, self.kv_heads), split_heads(value, self.kv_heads)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend within `x` `[B, T, E]`; with `causal`, which excludes a mask, to positions up to the own only.

        `mask` is broadcastable to `[B, H, T, T]`; boolean (True: attend) or float (added to the scores).
        """
        query, key, value = self.project(x)
        if self.cap:
            return self.output(merge_heads(self._attend_limited(query, key, value, mask, causal)))
        dropout = self.dropout if self.training else 0.0
        with kernels(query):
            context = functional.scaled_dot_product_attention(
                query, key, value, mask, dropout, is_causal=causal, scale=self.scale, enable_gqa=self.kv_heads != self.heads
            )
        return self.output(merge_heads(context))

    def _attend_limited(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Attend with a soft limit of the scores, which torch's kernels do not have; `[B, H, T, D]`, a boolean mask."""
        groups = self.heads // self.kv_heads
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = limit_softly(query @ key.mT * self.scale, self.cap)
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
        return functional.dropout(scores.softmax(-1), self.dropout, self.training) @ value

    def step(self, x: Tensor, past: KeyValues | None, bias: Tensor | None = None) -> tuple[Tensor, KeyValues]:
        """Decode one position: `x` `[B, 1, E]`, with `past` keys and values `[B, H, t, D]`.

        `bias` `[1, H, 1, t + 1]` is added to the scores. Returns the output and the extended keys and values.
        """
        query, key, value = self.project(x)
        if past is not None:
            key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        context = functional.scaled_dot_product_attention(query, key, value, bias, scale=self.scale)
        return self.output(merge_heads(context)), (key, value)


class SlopedAttention(SelfAttention):
    """Self-attention whose scores fall with the distance of a key: its position, times its head's slope, is added to them."""

    slopes: Tensor

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.register_buffer("slopes", falling_slopes(shape.heads), persistent=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, T, E]` -> queries, keys and values; the former two have one dimension more."""
        query, key, value = super().project(x)
        slopes = (self.slopes / self.scale)[:, None, None].expand(*query.shape[:3], 1)
        places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None].expand(*key.shape[:3], 1)
        return torch.cat((query, slopes.to(query.dtype)), dim=-1), torch.cat((key, places), dim=-1), value


class CrossAttention(nn.Module):
    """Attention of the decoder to the encoder's output, whose keys and values are projected once per sentence."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.heads, self.scale = shape.heads, shape.scale
        bias = shape.bias if shape.input_bias is None else shape.input_bias
        self.query = nn.Linear(shape.model_dim, shape.inner_dim, bias)
        self.key_value = nn.Linear(shape.model_dim, 2 * shape.inner_dim, bias)
        self.output = nn.Linear(shape.inner_dim, shape.model_dim, shape.bias)

    def project_memory(self, memory: Tensor) -> KeyValues:
        """`[B, S, E]` -> keys and values, each `[B, H, S, D]`."""
        key, value = self.key_value(memory).chunk(2, dim=-1)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, x: Tensor, memory: KeyValues, mask: Tensor | None = None) -> Tensor:
        """Attend from `x` `[B, T, E]` to the projected memory; `mask` `[B, 1, 1, S]` is False at padding."""
        query, (key, value) = split_heads(self.query(x), self.heads), memory
        with kernels(query):
            context = functional.scaled_dot_product_attention(query, key, value, mask, scale=self.scale)
        return self.output(merge_heads(context))
