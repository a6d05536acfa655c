"""Multi-head attention (Vaswani et al. 2017, section 3.2): the one definition in the project.

Shapes are written `[B, T, E]`: batch, positions, embedding; `H` heads of `D` dimensions each.
The modules split into *project* and *attend* so that the exporter can put a cached, fused operator between the two.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

KeyValues = tuple[Tensor, Tensor]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[B, T, H*D]` -> `[B, H, T, D]`."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """`[B, H, T, D]` -> `[B, T, H*D]`."""
    return x.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class AttentionShape:
    """`heads` of `head_dim` over vectors of `model_dim`."""

    model_dim: int
    heads: int
    head_dim: int
    bias: bool = True
    scaled: bool = True  # products of queries and keys are divided by sqrt(head_dim)
    input_bias: bool = True  # of the projection to queries, keys and values, where the others have one

    @property
    def inner_dim(self) -> int:
        """Of all heads together."""
        return self.heads * self.head_dim

    @property
    def scale(self) -> float:
        """What products of queries and keys are multiplied by."""
        return self.head_dim**-0.5 if self.scaled else 1.0


class SelfAttention(nn.Module):
    """Queries, keys and values all come from the same sequence, through one fused projection."""

    def __init__(self, shape: AttentionShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.scale = shape.heads, shape.scale
        self.dropout = dropout
        self.query_key_value = nn.Linear(shape.model_dim, 3 * shape.inner_dim, shape.bias and shape.input_bias)
        self.output = nn.Linear(shape.inner_dim, shape.model_dim, shape.bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, T, E]` -> queries, keys, values, each `[B, H, T, D]`."""
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        return split_heads(query, self.heads), split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, x: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend within `x`.

        Args:
            x: `[B, T, E]`.
            mask: broadcastable to `[B, H, T, T]`; boolean: True where attention is allowed, or float: added to the scores.
            causal: position t sees positions up to t only; not together with a mask.
        """
        query, key, value = self.project(x)
        dropout = self.dropout if self.training else 0.0
        context = functional.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal, scale=self.scale)
        output: Tensor = self.output(merge_heads(context))
        return output

    def step(self, x: Tensor, past: KeyValues | None, bias: Tensor | None = None) -> tuple[Tensor, KeyValues]:
        """One position more: `x` is `[B, 1, E]`, `past` and the result hold `[B, H, t, D]` keys and values.

        `bias` `[1, H, 1, t + 1]` is added to the scores.
        """
        query, key, value = self.project(x)
        if past is not None:
            key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        context = functional.scaled_dot_product_attention(query, key, value, bias, scale=self.scale)
        return self.output(merge_heads(context)), (key, value)


class CrossAttention(nn.Module):
    """Queries come from the decoder; keys and values from the encoder's output, projected once a sentence."""

    def __init__(self, shape: AttentionShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.scale = shape.heads, shape.scale
        self.dropout = dropout
        self.query = nn.Linear(shape.model_dim, shape.inner_dim, shape.bias)
        self.key_value = nn.Linear(shape.model_dim, 2 * shape.inner_dim, shape.bias)
        self.output = nn.Linear(shape.inner_dim, shape.model_dim, shape.bias)

    def project_memory(self, memory: Tensor) -> KeyValues:
        """`[B, S, E]` -> keys and values, each `[B, H, S, D]`."""
        key, value = self.key_value(memory).chunk(2, dim=-1)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, x: Tensor, memory: KeyValues, mask: Tensor | None = None) -> Tensor:
        """Attend from `x` `[B, T, E]` to projected memory; `mask` `[B, 1, 1, S]` is False on padding."""
        key, value = memory
        dropout = self.dropout if self.training else 0.0
        query = split_heads(self.query(x), self.heads)
        context = functional.scaled_dot_product_attention(query, key, value, mask, dropout, scale=self.scale)
        output: Tensor = self.output(merge_heads(context))
        return output
