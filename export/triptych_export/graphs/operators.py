"""Fused operators of ONNX Runtime (domain com.microsoft) as symbolic PyTorch functions for the tracer.

They have no PyTorch kernel: a module that calls them can be exported, but not run.
Reference: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DOMAIN = "com.microsoft"
OWN_DOMAIN = "ai.triptych"  # of operators that int8 graphs define as functions (quantization/functions.py)
PER_ROW_MATMUL, PER_ROW_GEMM, PER_ROW_ATTENTION = "PerRowMatMul", "PerRowGemm", "PerRowAttention"
BLOCK_MATMUL = "BlockMatMul"
Attributes = dict[str, int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]]
AFTER_SOFTMAX = 2  # of GroupQueryAttention's qk_output
KEY_SCALE = 12  # its input for the scales of int8 keys; those of values follow


@dataclass(frozen=True)
class KeyValues:
    """Keys and values: both `[B, H, capacity, D]`, or `[B, 1, capacity, H*D]` for sources in CUDA graphs.

    `scales` are those of int8 keys and values, `[H*D]` each; empty: they are floats.
    """

    key: Tensor
    value: Tensor
    capacity: int
    scales: tuple[Tensor, ...] = ()


def _operator(
    name: str,
    arguments: Sequence[Tensor | None],
    like: Tensor,
    attributes: Attributes | None = None,
    shape: Sequence[int | torch.SymInt] | None = None,
    version: int = 1,
) -> Tensor:
    """Insert an operator with one output, which has the type of `like`, and its shape unless `shape` is given."""
    shape = like.shape if shape is None else shape
    return torch.onnx.ops.symbolic(name, arguments, attrs=attributes, dtype=like.dtype, shape=shape, version=version)


def write_places(cache: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """Write `[..., D]` to a cache, to be bound to its memory; `places` are the indices `[..., N]` of its first dimensions."""
    return _operator("ScatterND", (cache, places, values), cache, version=18)


def gather_places(cache: Tensor, places: Tensor, size: int) -> Tensor:
    """Read `[..., D]` from a cache, where D is `size`; `places` as in `write_places`."""
    return _operator("GatherND", (cache, places), cache, shape=(*places.shape[:-1], size), version=13)


def cached_attention(
    packed: Tensor, past: KeyValues, positions: Tensor, heads: int, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute self-attention of one new token per row over a static cache, each row at its own position.

    Args:
        packed: `[B, 1, 3*H*D]` query, key, value; the query carries the 1/sqrt(D).
        past: the new key and value are written at the row's position.
        positions: `[B]` int32, number of positions in each row's cache.
        heads: H.
        bias: `[B, H, 1, capacity]`, added to the scores; None: nothing is.

    Returns:
        Context `[B, 1, H*D]` and the caches, to be bound to the memory of the past ones.
    """
    batch, _, width = packed.shape
    context, key, value = _group_query_attention(
        (packed, None, None), past, positions, heads, [(batch, 1, width // 3), past.key.shape, past.value.shape], bias
    )
    return context, key, value


def causal_attention(
    new: Sequence[Tensor],
    past: KeyValues | None,
    positions: Tensor,
    total: Tensor,
    heads: tuple[int, int],
    rotary: tuple[Tensor, Tensor] | None,
    window: int,
    cap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute self-attention of new tokens over a static cache: one token of each row, a part of one row, or whole rows.

    Args:
        new: query `[B, S, H*D]`, key and value `[B, S, K*D]`, or one tensor of all three; the query carries the 1/sqrt(D).
        past: `[B, K, T, D]`; the new keys and values are written at their positions. None, for whole rows: there is no cache.
        positions: `[B]` int32, position of each row's last token.
        total: `[1]` int32: T, or S for whole rows.
        heads: H and K, of queries and of keys and values.
        rotary: cosines and sines `[positions, D/2]`; None: without rotary positions.
        window: positions that are visible, the token's own included; 0: all.
        cap: soft limit of the scores; 0: none.

    Returns:
        Context `[B, S, H*D]` and the caches, to be bound to the memory of the past ones.
    """
    batch, length, width = new[0].shape
    own, shared = heads
    size = width // (own if len(new) > 1 else own + 2 * shared)
    caches = (None, None) if past is None else (past.key, past.value)
    shapes = [(batch, shared, length, size)] * 2 if past is None else [past.key.shape, past.value.shape]
    attributes: Attributes = {"num_heads": own, "kv_num_heads": shared, "scale": 1.0}
    if rotary is not None:
        attributes["do_rotary"] = 1
    if window:
        attributes["local_window_size"] = window
    if cap:
        attributes["softcap"] = cap
    context, key, value = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::GroupQueryAttention",
        (*new, *([None] * (3 - len(new))), *caches, positions, total, *(rotary or ())),
        attrs=attributes,
        dtypes=(new[0].dtype,) * 3,
        shapes=((batch, length, own * size), *shapes),
        version=1,
    )
    return context, key, value


def memory_attention(
    query: Tensor, nothing: Tensor, memory: KeyValues, last: Tensor, heads: int, weights: bool
) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """Compute cross-attention of one token per row over the encoder's keys and values, each row with its own source length.

    GroupQueryAttention without new keys reads only the past ones, up to `last`: no mask tensor, and padding is never read.

    Args:
        query: `[B, 1, H*D]`, carrying the 1/sqrt(D).
        nothing: `[B, 0, H*D]`, empty new keys and values.
        memory: the source's keys and values.
        last: `[B]` int32, index of each row's last source position.
        heads: H.
        weights: return the attention too.

    Returns:
        Context `[B, 1, H*D]`; attention `[B, H, 1, S]`, undefined after `last`, or None; if they are int8, the unchanged keys
        and values, which the operator must return, to be bound to the memory of the given ones.
    """
    shapes: list[Sequence[int | torch.SymInt]] = [query.shape]
    if weights or memory.scales:
        shapes += [memory.key.shape, memory.value.shape]
    if weights:
        shapes.append((query.shape[0], heads, 1, memory.capacity))
    context, *more = _group_query_attention((query, nothing, nothing), memory, last, heads, shapes)
    return context, more[2] if weights else None, list(more[:2]) if memory.scales else []


def _group_query_attention(
    new: tuple[Tensor, Tensor | None, Tensor | None],
    past: KeyValues,
    last: Tensor,
    heads: int,
    shapes: Sequence[Sequence[int | torch.SymInt]],
    bias: Tensor | None = None,
) -> Sequence[Tensor]:
    """Insert the operator with outputs of these shapes: context, keys, values, attention."""
    arguments: list[Tensor | None] = [*new, past.key, past.value, last, torch.tensor(past.capacity, dtype=torch.int32)]
    attributes: Attributes = {"num_heads": heads, "kv_num_heads": heads, "scale": 1.0}
    if len(shapes) > len(("context", "keys", "values")):
        attributes["qk_output"] = AFTER_SOFTMAX
    if bias is not None:
        arguments += [None, None, None, bias]
    if past.scales:
        arguments += [None] * (KEY_SCALE - len(arguments))
        arguments += past.scales
        attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
    kind = new[0].dtype
    outputs: Sequence[Tensor] = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::GroupQueryAttention",
        arguments,
        attrs=attributes,
        dtypes=(kind, past.key.dtype, past.value.dtype, kind)[: len(shapes)],
        shapes=shapes,
        version=1,
    )
    return outputs


def padded_attention(query: Tensor, memory: KeyValues, lengths: Tensor, heads: int) -> Tensor:
    """Compute the same cross-attention for CUDA: `[B, 1, H*D]`.

    ONNX's own Attention with `nonpad_kv_seqlen` (opset 24). On `[B, S, H*D]` keys CUDA uses cuDNN or FlashAttention directly:
    no mask tensor, which would rule them out, no copy into another layout, and no length on the host, so that the step can be
    captured. GroupQueryAttention without new keys would need separate heads and also prepares its lengths.

    Args:
        query: `[B, 1, H*D]`, carrying the 1/sqrt(D).
        memory: the source's keys and values, `[B, 1, S, H*D]` each.
        lengths: `[B]` int64, at least 1; finite values after them have no effect.
    """
    arguments = (query, memory.key.squeeze(1), memory.value.squeeze(1), None, None, None, lengths)
    attributes: Attributes = {"q_num_heads": heads, "kv_num_heads": heads, "scale": 1.0}
    return _operator("Attention", arguments, query, attributes, version=24)


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
    """Compute attention to padded or full sequences: `[B, T, H*D]`.

    Args:
        query: `[B, T, H*D]`; keys and values are `[B, S, H*D]`.
        mask: `[B, S]` int32, 0 on padding, or `[B]` int32, lengths; None: all rows are full.
        scale: factor of query-key products; None: 1/sqrt(D).
        bias: `[1, H, T, S]` or broadcastable to it, added to the scores; -inf excludes a position.
        causal: position t sees positions up to t only.
    """
    attributes: Attributes = {"num_heads": heads}
    if scale is not None and scale != (query.shape[-1] // heads) ** -0.5:
        attributes["scale"] = scale
    if causal:
        attributes["unidirectional"] = 1
    arguments: list[Tensor | None] = [query, key, value, None, mask, bias]
    while arguments[-1] is None:
        arguments.pop()
    return _operator(f"{DOMAIN}::MultiHeadAttention", arguments, query, attributes)


def packed_attention(
    x: Tensor, weight: Tensor, bias: Tensor, lengths: Tensor | None, heads: int, causal: bool = False
) -> Tensor:
    """Compute self-attention `[B, T, E]` with its own projection to query, key and value, each row within its length.

    The operator writes the projection directly in the heads' layout: 3-15 % less time per layer than MatMul, Split and
    MultiHeadAttention, in float32 and (as QAttention) in int8.

    Args:
        x: `[B, T, E]`.
        weight: `[E, 3E]` query, key, value; the bias is `[3E]`.
        lengths: `[B]` int32, later positions are never read; None: all rows are full.
        causal: position t sees positions up to t only.
    """
    attributes: Attributes = {"num_heads": heads}
    if causal:
        attributes["unidirectional"] = 1
    arguments = (x, weight, bias) if lengths is None else (x, weight, bias, lengths)
    return _operator(f"{DOMAIN}::Attention", arguments, x, attributes)


def rotary_embedding(x: Tensor, cosines: Tensor, sines: Tensor, places: Tensor | None = None) -> Tensor:
    """Rotate queries or keys `[B, T, H*D]` by the angles of their positions; `cosines` and `sines` are `[S, D/2]`.

    `places` are the positions, `[B, T]` int64; None: 0 to T - 1.
    """
    places = torch.zeros(1, dtype=torch.int64) if places is None else places
    return _operator(f"{DOMAIN}::RotaryEmbedding", (x, places, cosines, sines), x)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Compute `x / sqrt(mean(x^2) + epsilon) * weight` over the last dimension (ONNX Runtime's operator in ONNX's domain)."""
    attributes: Attributes = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
    return _operator("SimplifiedLayerNormalization", (x, weight), x, attributes)


def bidirectional_rnn(cell: str, x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
    """Run a layer of "gru" or "lstm" cells over rows of different `lengths` `[B]` int32, in both directions.

    Args:
        x: `[S, B, E]`.
        weight: `[2, gates * N, E]`, of the inputs.
        recurrent: `[2, gates * N, N]`, of the states.
        bias: `[2, 2 * gates * N]`.

    Returns:
        States `[S, B, 2 * N]`, zeros after a row's length.
    """
    size = recurrent.shape[2]
    attributes: Attributes = {"hidden_size": size, "direction": "bidirectional"}
    if cell == "gru":
        attributes["linear_before_reset"] = 1
    arguments = (x, weight, recurrent, bias, lengths)
    states = _operator(cell.upper(), arguments, x, attributes, (x.shape[0], 2, x.shape[1], size), version=14)
    return states.transpose(1, 2).flatten(2)


def by_heads(x: Tensor, heads: int, order: Sequence[int] = (0, 2, 1, 3)) -> Tensor:
    """`[B, T, H*D]` -> `[B, H, T, D]`, or another order of B, T, H and D, without numbers that are computed from a shape."""
    sizes = (*x.shape[:2], heads, x.shape[2] // heads)
    parts = _operator("Reshape", (x, torch.tensor([0, 0, heads, -1])), x, shape=sizes, version=14)
    return _operator("Transpose", (parts,), parts, {"perm": order}, [sizes[axis] for axis in order], version=13)


def gather_elements(x: Tensor, places: Tensor, axis: int) -> Tensor:
    """Look up elements of `x` as torch.gather does, which would need int64 `places`."""
    return _operator("GatherElements", (x, places), x, {"axis": axis}, places.shape, version=13)


def look_up(table: Tensor, places: Tensor) -> Tensor:
    """Look up elements of a vector at int32 `places` of any shape."""
    return _operator("Gather", (table, places), table, {"axis": 0}, places.shape, version=13)


def top_k(values: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the `k` (`[1]` int64) largest of `[N, C]`, descending, and their indices; both `[N, k]`.

    The tracer cannot express a size that is an input; it gets 1, and the graph's outputs are corrected afterwards.
    """
    shape = (values.shape[0], 1)
    best, indices = torch.onnx.ops.symbolic_multi_out(
        "TopK", (values, k), attrs={"axis": -1}, dtypes=(values.dtype, torch.int64), shapes=(shape, shape), version=11
    )
    return best, indices


def mark_quantized(x: Tensor, name: str, scale: float, zero_point: int) -> Tensor:
    """Insert an operator that stands for quantizing `x`, and is replaced or removed after tracing."""
    return _operator(name, (x,), x, {"scale": scale, "zero_point": zero_point})


def round_to_int8(x: Tensor) -> Tensor:
    """Round `x` to integers from -128 to 127."""
    arguments = (x, torch.tensor(1.0), torch.tensor(0, dtype=torch.int8))
    return torch.onnx.ops.symbolic("QuantizeLinear", arguments, dtype=torch.int8, shape=x.shape, version=21)


def integer_projection(x: Tensor, weights: Tensor, scales: Tensor, biases: Tensor) -> Tensor:
    """Compute `x @ (weights * scales) + biases`; `x` `[B, E]` is quantized at run time, weights are int8 `[E, N]`."""
    shape = (x.shape[0], weights.shape[1])
    return _operator(f"{DOMAIN}::DynamicQuantizeMatMul", (x, weights, scales, None, biases), x, shape=shape)
