"""Encoder layers on ONNX Runtime's fused operators (BERT and ViT, ModernBERT, DeBERTa, Swin, PVT), and the relative position
bias of T5 and MPNet.

Swin's padding, roll and cut into windows move whole positions, so together they are one Gather with constant indices.

Shapes: `B` rows or images, `T` positions, `P` positions of a grid, `W` windows of `N` positions, `H` heads, `E` dimensions.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.errors import GraphError
from triptych_export.graphs.input_scales import mark_input
from triptych_export.graphs.operators import KeyValues as Caches
from triptych_export.graphs.operators import (
    by_heads,
    causal_attention,
    fused_attention,
    gather_elements,
    packed_attention,
    rms_norm,
    rotary_embedding,
)
from triptych_training.models.attention import CrossAttention, KeyValues, SelfAttention, SlopedAttention, norm_heads
from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.gpt import GptLayer
from triptych_training.models.positions import RelativeBias
from triptych_training.models.rotary import RotaryAttention
from triptych_training.models.swin import TINY, CosineAttention, PatchMerging, SwinLayer


class FusedLayer(nn.Module):
    """Encoder layer with self-attention in one operator."""

    def __init__(self, layer: EncoderLayer) -> None:
        super().__init__()
        self.layer = layer
        projection = layer.attention.query_key_value
        self.heads = layer.attention.heads
        self.weight, self.bias = packed_weight(projection), packed_bias(projection)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` `[B]` int32 bounds each row, None means full rows."""
        frame = self.layer.attention_residual
        entered = mark_input(frame.enter(x), self.layer.attention.query_key_value)
        context = packed_attention(entered, self.weight, self.bias, lengths, self.heads)
        x = frame.leave(x, self.layer.attention.output(context))
        return self.layer.feedforward_residual.around(x, self.layer.feedforward)


class UnpackedLayer(nn.Module):
    """Encoder layer for attention that the packed operator does not support: with a bias, or another head size."""

    def __init__(self, layer: EncoderLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, lengths: Tensor, bias: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` `[B]` int32, `bias` `[1, H, T, T]`."""
        return _with_bias(self.layer, x, lengths, lambda _query, _key: bias)


class BiasedLayer(nn.Module):
    """Encoder layer with a constant bias `[1, H, T, T]` on attention scores."""

    def __init__(self, layer: EncoderLayer, bias: Tensor) -> None:
        super().__init__()
        self.layer, self.bias = layer, nn.Parameter(bias.detach().contiguous())

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` as for FusedLayer."""
        return _with_bias(self.layer, x, lengths, lambda _query, _key: self.bias)


BiasMaker = Callable[[Tensor, Tensor], Tensor | None]


def _with_bias(layer: EncoderLayer, x: Tensor, lengths: Tensor | None, bias: BiasMaker) -> Tensor:
    """Run a layer; `bias` makes what is added to the scores of queries and keys, both `[B, T, H*D]`."""
    frame, attention = layer.attention_residual, layer.attention
    query, key, value = attention.query_key_value(frame.enter(x)).chunk(3, dim=-1)
    context = fused_attention(query, key, value, attention.heads, lengths, attention.scale, bias(query, key))
    x = frame.leave(x, attention.output(context))
    return layer.feedforward_residual.around(x, layer.feedforward)


class FirstPositionLayer(nn.Module):
    """Last encoder layer that computes only the first positions; keys and values are those of all positions."""

    def __init__(self, layer: EncoderLayer, positions: int) -> None:
        super().__init__()
        self.layer = layer
        self.positions = positions
        projection = layer.attention.query_key_value
        width = projection.in_features
        self.heads = layer.attention.heads
        self.query = _rows(projection, 0, width)
        self.key_value = _rows(projection, width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, E]`, full rows -> the first positions `[B * positions, E]`."""
        frame = self.layer.attention_residual
        entered = frame.enter(x)
        key, value = self.key_value(entered).chunk(2, dim=-1)
        context = fused_attention(self.query(entered[:, : self.positions]), key, value, self.heads)
        x = frame.leave(x[:, : self.positions].flatten(0, 1), self.layer.attention.output(context.flatten(0, 1)))
        return self.layer.feedforward_residual.around(x, self.layer.feedforward)


def packed_weight(projection: nn.Linear) -> nn.Parameter:
    """Concatenate the weights of query, key and value: `[E, 3E]`."""
    return nn.Parameter(projection.weight.detach().t().contiguous())


def packed_bias(projection: nn.Linear) -> nn.Parameter:
    """Concatenate the biases of query, key and value, `[3E]`; zeros if there are none."""
    return nn.Parameter(torch.zeros(projection.out_features)) if projection.bias is None else projection.bias


def _rows(linear: nn.Linear, start: int, stop: int) -> nn.Linear:
    """Restrict a projection to some of its outputs."""
    part = nn.Linear(linear.in_features, stop - start, linear.bias is not None)
    part.weight = nn.Parameter(linear.weight.detach()[start:stop].clone())
    if linear.bias is not None:
        part.bias = nn.Parameter(linear.bias.detach()[start:stop].clone())
    return part


class RotaryLayer(nn.Module):
    """Encoder layer with one projection, two rotations and one attention operator."""

    def __init__(self, layer: EncoderLayer) -> None:
        super().__init__()
        self.layer = layer
        assert isinstance(layer.attention, RotaryAttention)
        self.projection, self.rotary = layer.attention.query_key_value, layer.attention.rotary
        self.heads = layer.attention.heads

    def forward(self, x: Tensor, lengths: Tensor, bias: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` `[B]` int32 bounds each row, `bias` `[1, 1, T, T]` is added to the scores."""
        frame = self.layer.attention_residual
        query, key, value = self.projection(frame.enter(x)).chunk(3, dim=-1)
        query, key = (rotary_embedding(each, self.rotary.cosines, self.rotary.sines) for each in (query, key))
        context = fused_attention(query, key, value, self.heads, lengths, bias=bias)
        x = frame.leave(x, self.layer.attention.output(context))
        return self.layer.feedforward_residual.around(x, self.layer.feedforward)


class DecoderLayer(nn.Module):
    """Layer of a decoder-only model over whole texts, where `attend_causally` does not serve: in both directions, or captured.

    Raises:
        GraphError: the layer limits its scores, which the operator does not, or has no attention.
    """

    def __init__(self, layer: GptLayer) -> None:
        super().__init__()
        if layer.convolution is not None:
            raise GraphError("convolution_layers: they are not supported in fp16 graphs of texts; leave out fp16")
        if layer.attention.cap:
            raise GraphError("attention: soft limits of scores are not supported in fp16 graphs of texts; leave out fp16")
        if isinstance(layer.attention, SlopedAttention):
            raise GraphError("attention: slopes are not supported in fp16 graphs of texts; leave out fp16")
        self.layer = layer

    def forward(self, x: Tensor, lengths: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` `[B]` int32 bounds each row, `bias` `[1, 1, T, T]` is added to the scores."""
        own = self.layer.attention
        entered = self.layer.attention_residual.enter(x)
        query, key, value = _rotated(own, entered) if isinstance(own, RotaryAttention) else _projected(own, entered)
        if own.heads > own.kv_heads:  # the operator has as many heads of keys as of queries
            key, value = (_repeat_heads(each, own.kv_heads, own.heads // own.kv_heads) for each in (key, value))
        context = fused_attention(query, key, value, own.heads, lengths, own.scale, bias, causal)
        return self.layer.finish(x, own.output(context))


def attend_causally(
    layer: GptLayer, x: Tensor, past: Caches | None, positions: Tensor, total: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a layer, prepared by `fold_gpt`, whose attention is one operator; the last arguments are those of `causal_attention`.

    Returns:
        `[B, S, E]`, and the caches of keys and values.
    """
    own, entered = layer.attention, layer.attention_residual.enter(x)
    places = first_positions(positions, total, x.shape[1])[:, None] + torch.arange(x.shape[1])
    rotary = (own.rotary.cosines, own.rotary.sines) if isinstance(own, RotaryAttention) else None
    if isinstance(own, RotaryAttention) and own.late_norm:
        rotary, new = None, _rotated(own, entered, places)
    elif isinstance(own, SlopedAttention):
        query, key, value = _projected(own, entered)
        new = [query, key + functional.embedding(places, own.get_parameter("places")), value]
    else:
        new = [own.query_key_value(entered)] if own.query_norm is None else _projected(own, entered)
    heads = own.heads, own.kv_heads
    context, key, value = causal_attention(new, past, positions, total, heads, rotary, layer.window, own.cap)
    return layer.finish(x, own.output(context)), key, value


def first_positions(positions: Tensor, total: Tensor, length: int) -> Tensor:
    """Return the position of each row's first of `length` tokens, `[B]` int32; the others are those of `causal_attention`."""
    return torch.where(total == length, 0, positions + 1 - length)


def _rotated(attention: RotaryAttention, x: Tensor, places: Tensor | None = None) -> list[Tensor]:
    """Queries, keys and values `[B, T, H*D]`, the former two normalised and rotated; `places` as in `rotary_embedding`."""
    query, key, value = _projected(attention, x)
    tables = attention.rotary.cosines, attention.rotary.sines
    query, key = rotary_embedding(query, *tables, places), rotary_embedding(key, *tables, places)
    return [*_normed(attention, query, key), value] if attention.late_norm else [query, key, value]


def _projected(attention: SelfAttention, x: Tensor) -> list[Tensor]:
    """Queries, keys and values `[B, T, H*D]`, the former two normalised if that is not done later, and not yet rotated."""
    query, key, value = attention.query_key_value(x).split(attention.parts, dim=-1)
    return [query, key, value] if attention.late_norm else [*_normed(attention, query, key), value]


def _normed(attention: SelfAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Normalise queries and keys `[B, T, H*D]`, where the attention does it."""
    if attention.query_norm is None or attention.key_norm is None:
        return query, key
    return norm_heads(query, attention.query_norm), norm_heads(key, attention.key_norm)


def _repeat_heads(x: Tensor, heads: int, times: int) -> Tensor:
    """`[B, T, H*D]` -> `[B, T, H*times*D]`."""
    return torch.cat((torch.unflatten(x, -1, (heads, 1, -1)),) * times, dim=3).flatten(2)


class DisentangledLayer(nn.Module):
    """DeBERTa's encoder layer; the scaled projections of the distances' vectors are constants.

    Products of all tokens with these are gathered by distance. With Gather, not GatherElements, this took three times as long.
    """

    def __init__(self, layer: EncoderLayer, query: Tensor, key: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.far_query = nn.Parameter(query.detach() * layer.attention.scale, requires_grad=False)  # [H, R, D]
        self.far_key = nn.Parameter((key.detach() * layer.attention.scale).mT.contiguous(), requires_grad=False)  # [H, D, R]

    def forward(self, x: Tensor, lengths: Tensor, rows: Tensor, reach: int | torch.SymInt) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` `[B]` int32 bounds each row.

        `rows` `[B, H, T, T]` int32 number the vectors of distances, from the first of the `2 * reach` in the middle.
        """
        heads, first, count = self.layer.attention.heads, self.far_query.shape[1] // 2 - reach, 2 * reach

        def bias(query: Tensor, key: Tensor) -> Tensor:
            to_distances = by_heads(query, heads) @ self.far_key.narrow(2, first, count)
            from_distances = self.far_query.narrow(1, first, count) @ by_heads(key, heads, (0, 2, 3, 1))
            return gather_elements(to_distances, rows, 3) + gather_elements(from_distances, rows, 2)

        return _with_bias(self.layer, x, lengths, bias)


class WindowLayer(nn.Module):
    """Swin layer: attention within windows, then the feed-forward.

    The operator takes one bias per head and repeats it for every row. A shifted layer's bias differs between windows, so there
    each head of each window becomes a head of its own and a row is an image; otherwise a row is a window.
    """

    order: Tensor  # positions by window
    back: Tensor  # index of each position in `order`

    def __init__(self, layer: SwinLayer) -> None:
        super().__init__()
        self.layer = layer
        windows, apart = layer.windows, layer.mask()
        self.area = windows.size**2
        self.lanes = 1 if apart is None else windows.count  # windows side by side in a row
        cosine, size = isinstance(layer.attention, CosineAttention), layer.attention.parts[0] // layer.attention.heads
        self.unit = nn.Parameter(torch.full((size,), size**-0.5)) if cosine else None
        self.heads = self.lanes * layer.attention.heads
        self.bias = nn.Parameter(layer.bias().detach()[None].contiguous())  # [1, H, N, N]
        self.register_buffer("apart", None if apart is None else apart[:, None])  # [W, 1, N, N]
        count = windows.rows * windows.columns
        order = (windows.split(_numbers(count)).squeeze(-1) - 1) % (count + 1)  # [W, N]; P for padding
        order = (order if apart is None else order.t()).flatten()
        self.pads = bool((order == count).any())
        self.moves = order.tolist() != list(range(count))
        self.register_buffer("order", order)
        self.register_buffer("back", torch.argsort(order, stable=True)[:count])

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P, E]`."""
        frame, attention = self.layer.attention_residual, self.layer.attention
        entered = take(frame.enter(x), self.order, self.pads) if self.moves else frame.enter(x)
        width = self.lanes * entered.shape[-1]
        parts = attention.query_key_value(entered).chunk(3, dim=-1)
        parts = parts if self.unit is None else self.normed(*parts)
        query, key, value = (part.reshape(-1, self.area, width) for part in parts)
        apart = self.get_buffer("apart") if self.lanes > 1 else None
        bias = self.bias if apart is None else (self.bias + apart).flatten(0, 1)[None]  # [1, W*H, N, N]
        context = fused_attention(query, key, value, self.heads, scale=attention.scale, bias=bias).reshape(*entered.shape)
        if self.moves:
            context = torch.index_select(context, 1, self.back)
        x = frame.leave(x, attention.output(context))
        return self.layer.feedforward_residual.around(x, self.layer.feedforward)

    def normed(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scale queries and keys to the length 1, and queries by the heads' factors."""
        attention, unit = self.layer.attention, self.unit
        assert isinstance(attention, CosineAttention)
        assert unit is not None
        heads = (torch.unflatten(each, -1, (attention.heads, -1)) for each in (query, key))
        query, key = (rms_norm(each, unit, TINY) for each in heads)
        return (query * attention.factors).flatten(2), key.flatten(2), value


class FusedCrossAttention(CrossAttention):
    """Attention to full sequences in one operator."""

    def __init__(self, attention: CrossAttention) -> None:
        nn.Module.__init__(self)
        self.heads, self.query = attention.heads, attention.query
        self.key_value, self.output = attention.key_value, attention.output

    def project_memory(self, memory: Tensor) -> KeyValues:
        key, value = self.key_value(memory).chunk(2, dim=-1)
        return key, value

    def forward(self, x: Tensor, memory: KeyValues, mask: Tensor | None = None) -> Tensor:
        return self.output(fused_attention(self.query(x), *memory, self.heads))


class GatheredMerging(nn.Module):
    """PatchMerging around the checkpoint's own sub-modules."""

    order: Tensor

    def __init__(self, merging: PatchMerging) -> None:
        super().__init__()
        self.merging = merging
        count = merging.rows * merging.columns
        self.pads = bool(merging.rows % 2 or merging.columns % 2)
        self.register_buffer("order", (merging.gather(_numbers(count)).flatten() - 1) % (count + 1))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P/4, 2E]`."""
        quarters = take(x, self.order, self.pads)
        return self.merging.merge(quarters.reshape(-1, len(self.order) // 4, 4 * x.shape[-1]))


def take(x: Tensor, order: Tensor, pads: bool) -> Tensor:
    """Gather positions of `[B, P, E]` by index; index P, if used, gives zeros."""
    return torch.index_select(functional.pad(x, (0, 0, 0, 1)) if pads else x, 1, order)


def _numbers(count: int) -> Tensor:
    """Number the positions from 1, `[1, P, 1]`, so that padding, which is 0, is distinct."""
    return torch.arange(1, count + 1)[None, :, None]


class DistanceBias(nn.Module):
    """T5's bias of attention scores (Raffel et al. 2020, section 2.1); distances beyond the table use its last entry."""

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        self.last = bias.max_distance
        self.first = -self.last if bias.bidirectional else 0  # smallest distance of a query from its key
        numbers = bias.bucket(-torch.arange(self.first, self.last + 1))
        self.table = nn.Parameter(bias.table.weight.detach()[numbers], requires_grad=False)  # [distances, H]

    def forward(self, positions: Tensor) -> Tensor:
        """Biases between all `positions` `[T]`, 0 to T - 1: `[1, H, T, T]`."""
        return self._look_up(positions[:, None] - positions)[None]

    def at(self, positions: Tensor, capacity: int) -> Tensor:
        """Biases of one query per row at `positions` `[B]` int32 to the first `capacity` keys: `[B, H, 1, capacity]`."""
        keys = torch.arange(capacity, dtype=torch.int32)
        return self._look_up(positions[:, None] - keys).transpose(0, 1)[:, :, None]

    def _look_up(self, distances: Tensor) -> Tensor:
        """`[N, M]` -> `[H, N, M]`."""
        within = distances.float().clamp(self.first, self.last)  # as floats: CUDA has no kernel that clamps integers
        places = within.to(distances.dtype) - self.first
        return functional.embedding(places, self.table).permute(2, 0, 1)
