"""Fused attention operators of ONNX Runtime (domain com.microsoft), as PyTorch functions that a tracer can see.

They have no PyTorch kernel: a module that calls them can be exported, not run.
Reference: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DOMAIN = "com.microsoft"
Attributes = dict[str, int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]]
AFTER_SOFTMAX = 2  # of GroupQueryAttention's qk_output


@dataclass(frozen=True)
class KeyValues:
    """What is attended to: both `[B, H, capacity, D]`."""

    key: Tensor
    value: Tensor
    capacity: int


def cached_attention(packed: Tensor, past: KeyValues, positions: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Self-attention of one new token a row over a static cache, each row at its own position.

    Args:
        packed: `[B, 1, 3*H*D]` query, key, value; the query carries the 1/sqrt(D).
        past: the new key and value are written at the row's position.
        positions: `[B]` int32, how many positions each row's cache holds already.
        heads: H.

    Returns:
        Context `[B, 1, H*D]` and the caches, meant to be bound to the very memory of the past ones.
    """
    batch, _, width = packed.shape
    context, key, value = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::GroupQueryAttention",
        (packed, None, None, past.key, past.value, positions, torch.tensor(past.capacity, dtype=torch.int32)),
        attrs={"num_heads": heads, "kv_num_heads": heads, "scale": 1.0},
        dtypes=(packed.dtype, packed.dtype, packed.dtype),
        shapes=((batch, 1, width // 3), past.key.shape, past.value.shape),
        version=1,
    )
    return context, key, value


def memory_attention(
    query: Tensor, nothing: Tensor, memory: KeyValues, last: Tensor, heads: int, weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Cross-attention of one token a row over the encoder's keys and values, each row with its own source length.

    GroupQueryAttention with no new keys reads the past ones only, up to `last`: no mask tensor, no look at padding.

    Args:
        query: `[B, 1, H*D]`, carrying the 1/sqrt(D).
        nothing: `[B, 0, H*D]`, the new keys and values.
        memory: of the source.
        last: `[B]` int32, index of each row's last source position.
        heads: H.
        weights: return the attention too.

    Returns:
        Context `[B, 1, H*D]`; attention `[B, H, 1, S]`, of which what lies behind `last` means nothing, or None.
    """
    arguments = (query, nothing, nothing, memory.key, memory.value, last, torch.tensor(memory.capacity, dtype=torch.int32))
    attributes: Attributes = {"num_heads": heads, "kv_num_heads": heads, "scale": 1.0}
    if not weights:
        context: Tensor = torch.onnx.ops.symbolic(
            f"{DOMAIN}::GroupQueryAttention",
            arguments,
            attrs=attributes,
            dtype=query.dtype,
            shape=query.shape,
            version=1,
        )
        return context, None
    context, _, _, attention = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::GroupQueryAttention",
        arguments,
        attrs={**attributes, "qk_output": AFTER_SOFTMAX},
        dtypes=(query.dtype,) * 4,
        shapes=(query.shape, memory.key.shape, memory.value.shape, (query.shape[0], heads, 1, memory.capacity)),
        version=1,
    )
    return context, attention


def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Attention to padded sequences.

    Args:
        query: `[B, T, H*D]`.
        key: `[B, S, H*D]`.
        value: as `key`.
        mask: `[B, S]` int32, 0 on padding.
        heads: H.
    """
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::MultiHeadAttention",
        (query, key, value, None, mask),
        attrs={"num_heads": heads},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
    return context


def packed_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor | None,
    heads: int,
    causal: bool = False,
) -> Tensor:
    """Self-attention with its own projection to query, key and value, each row within its length.

    The operator writes the projection straight into the heads' layout: 3-15 % less time a layer than MatMul, Split and
    MultiHeadAttention, in float32 and (as QAttention) in int8.

    Args:
        x: `[B, T, E]`.
        weight: `[E, 3E]` query, key, value.
        bias: `[3E]`.
        lengths: `[B]` int32, positions from there on are never looked at; None: all rows are full.
        heads: H.
        causal: position t sees positions up to t only.

    Returns:
        Context `[B, T, E]`.
    """
    attributes: Attributes = {"num_heads": heads}
    if causal:
        attributes["unidirectional"] = 1
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::Attention",
        (x, weight, bias) if lengths is None else (x, weight, bias, lengths),
        attrs=attributes,
        dtype=x.dtype,
        shape=x.shape,
        version=1,
    )
    return context


def full_attention(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Attention without a mask: query `[B, S, E]`, key and value `[B, T, E]` -> context `[B, S, E]`."""
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::MultiHeadAttention",
        (query, key, value),
        attrs={"num_heads": heads},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
    return context


def top_k(values: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The `k` (`[1]` int64) largest of `[N, C]`, descending, and their indices; `[N, k]` both.

    The tracer has no name for a size that is an input; it is told 1, and the graph's outputs are corrected afterwards.
    """
    shape = (values.shape[0], 1)
    best, indices = torch.onnx.ops.symbolic_multi_out(
        "TopK", (values, k), attrs={"axis": -1}, dtypes=(values.dtype, torch.int64), shapes=(shape, shape), version=11
    )
    return best, indices


def integer_projection(x: Tensor, weights: Tensor, scales: Tensor, biases: Tensor) -> Tensor:
    """`x @ (weights * scales) + biases`, `x` quantized as it comes: float `[B, E]`, int8 `[E, N]`, `[N]`, `[N]` -> `[B, N]`."""
    result: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::DynamicQuantizeMatMul",
        (x, weights, scales, None, biases),
        dtype=x.dtype,
        shape=(x.shape[0], weights.shape[1]),
        version=1,
    )
    return result
