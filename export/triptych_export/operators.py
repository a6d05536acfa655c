"""Fused attention operators of ONNX Runtime (domain com.microsoft), as PyTorch functions that a tracer can see.

They have no PyTorch kernel: a module that calls them can be exported, not run.
Reference: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

import torch
from torch import Tensor

DOMAIN = "com.microsoft"


def cached_attention(
    packed: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Self-attention of one new token a row over a static cache, each row at its own position.

    Args:
        packed: `[B, 1, 3*H*D]` query, key, value; the query carries the 1/sqrt(D).
        past_key: `[B, H, T, D]`; the new key is written at the row's position.
        past_value: as `past_key`.
        positions: `[B]` int32, how many positions each row's cache holds already.
        heads: H.

    Returns:
        Context `[B, 1, H*D]` and the caches, meant to be bound to the very memory of the past ones.
    """
    batch, _, width = packed.shape
    capacity = torch.tensor(past_key.shape[2], dtype=torch.int32)
    context, key, value = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::GroupQueryAttention",
        (packed, None, None, past_key, past_value, positions, capacity),
        attrs={"num_heads": heads, "kv_num_heads": heads, "scale": 1.0},
        dtypes=(packed.dtype, packed.dtype, packed.dtype),
        shapes=((batch, 1, width // 3), past_key.shape, past_value.shape),
        version=1,
    )
    return context, key, value


def memory_attention(query: Tensor, key: Tensor, value: Tensor, last: Tensor, heads: int) -> Tensor:
    """Cross-attention of one token a row over the encoder's keys and values, each row with its own source length.

    GroupQueryAttention with no new keys reads the past ones only, up to `last`: no mask tensor, no look at padding.

    Args:
        query: `[B, 1, H*D]`, carrying the 1/sqrt(D).
        key: `[B, H, S, D]`.
        value: `[B, H, S, D]`.
        last: `[B]` int32, index of each row's last source position.
        heads: H.
    """
    capacity = torch.tensor(key.shape[2], dtype=torch.int32)
    nothing = query[:, :0]
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::GroupQueryAttention",
        (query, nothing, nothing, key, value, last, capacity),
        attrs={"num_heads": heads, "kv_num_heads": heads, "scale": 1.0},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
    return context


def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Full attention within padded sequences.

    Args:
        query: `[B, S, H*D]`, carrying the 1/sqrt(D).
        key: as `query`.
        value: as `query`.
        mask: `[B, S]` int32, 0 on padding.
        heads: H.
    """
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::MultiHeadAttention",
        (query, key, value, None, mask),
        attrs={"num_heads": heads, "scale": 1.0},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
    return context


def packed_attention(x: Tensor, weight: Tensor, bias: Tensor, lengths: Tensor | None, heads: int) -> Tensor:
    """Self-attention with its own projection to query, key and value, each row within its length.

    The operator writes the projection straight into the heads' layout: 3-15 % less time a layer than MatMul, Split and
    MultiHeadAttention, in float32 and (as QAttention) in int8.

    Args:
        x: `[B, T, E]`.
        weight: `[E, 3E]` query, key, value.
        bias: `[3E]`.
        lengths: `[B]` int32, positions from there on are never looked at; None: all rows are full.
        heads: H.

    Returns:
        Context `[B, T, E]`.
    """
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::Attention",
        (x, weight, bias) if lengths is None else (x, weight, bias, lengths),
        attrs={"num_heads": heads},
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
