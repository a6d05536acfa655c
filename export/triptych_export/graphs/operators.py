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
    """Keys and values: both `[B, H, capacity, D]`, or `[B, 1, capacity, H*D]` for sources in CUDA graphs."""

    key: Tensor
    value: Tensor
    capacity: int


def cached_attention(
    packed: Tensor, past: KeyValues, positions: Tensor, heads: int, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Self-attention of one new token a row over a static cache, each row at its own position.

    Args:
        packed: `[B, 1, 3*H*D]` query, key, value; the query carries the 1/sqrt(D).
        past: the new key and value are written at the row's position.
        positions: `[B]` int32, how many positions each row's cache holds already.
        heads: H.
        bias: `[B, H, 1, capacity]`, added to the scores.

    Returns:
        Context `[B, 1, H*D]` and the caches, meant to be bound to the very memory of the past ones.
    """
    batch, _, width = packed.shape
    arguments = (packed, None, None, past.key, past.value, positions, torch.tensor(past.capacity, dtype=torch.int32))
    context, key, value = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::GroupQueryAttention",
        arguments if bias is None else (*arguments, None, None, None, bias),
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


def padded_attention(query: Tensor, memory: KeyValues, lengths: Tensor, heads: int) -> Tensor:
    """Cross-attention of one token a row over the encoder's keys and values, each row with its own source length; for CUDA.

    ONNX's own Attention with `nonpad_kv_seqlen` (opset 24). On `[B, S, H*D]` keys CUDA goes through cuDNN or FlashAttention as
    they lie: no mask tensor, which would rule those out, no copy into another layout, no length that the host must know, so
    that the step can be captured. GroupQueryAttention without new keys would need the heads apart and prepares its lengths too.

    Args:
        query: `[B, 1, H*D]`, carrying the 1/sqrt(D).
        memory: of the source, `[B, 1, S, H*D]` each.
        lengths: `[B]` int64, at least 1; finite numbers behind them mean nothing and change nothing.
        heads: H.

    Returns:
        Context `[B, 1, H*D]`.
    """
    context: Tensor = torch.onnx.ops.symbolic(
        "Attention",
        (query, memory.key.squeeze(1), memory.value.squeeze(1), None, None, None, lengths),
        attrs={"q_num_heads": heads, "kv_num_heads": heads, "scale": 1.0},
        dtype=query.dtype,
        shape=query.shape,
        version=24,
    )
    return context


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    mask: Tensor | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Attention to padded or full sequences.

    Args:
        query: `[B, T, H*D]`.
        key: `[B, S, H*D]`.
        value: as `key`.
        heads: H.
        mask: `[B, S]` int32, 0 on padding, or `[B]` int32, lengths; None: all rows are full.
        scale: of products of queries and keys; None: the usual one.
        bias: `[1, H, T, S]`, or what broadcasts to it, added to the scores; -inf forbids.
        causal: position t sees positions up to t only.

    Returns:
        Context `[B, T, H*D]`.
    """
    attributes: Attributes = {"num_heads": heads}
    if scale is not None and scale != (query.shape[-1] // heads) ** -0.5:
        attributes["scale"] = scale
    if causal:
        attributes["unidirectional"] = 1
    arguments: list[Tensor | None] = [query, key, value, None, mask, bias]
    while arguments[-1] is None:
        arguments.pop()
    context: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::MultiHeadAttention",
        arguments,
        attrs=attributes,
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


def rotary_embedding(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate queries or keys `[B, T, H*D]` by the angles of positions 0 to T - 1; `cosines` and `sines` are `[S, D/2]`."""
    turned: Tensor = torch.onnx.ops.symbolic(
        f"{DOMAIN}::RotaryEmbedding",
        (x, torch.zeros(1, dtype=torch.int64), cosines, sines),
        dtype=x.dtype,
        shape=x.shape,
        version=1,
    )
    return turned


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """`x / sqrt(mean(x^2) + epsilon) * weight` over the last dimension; an operator of ONNX Runtime in ONNX's own domain."""
    y: Tensor = torch.onnx.ops.symbolic(
        "SimplifiedLayerNormalization",
        (x, weight),
        attrs={"axis": -1, "epsilon": epsilon, "stash_type": 1},
        dtype=x.dtype,
        shape=x.shape,
        version=1,
    )
    return y


def top_k(values: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the `k` (`[1]` int64) largest of `[N, C]`, descending, and their indices; both `[N, k]`.

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
