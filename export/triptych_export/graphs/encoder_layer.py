"""Encoder layer on ONNX Runtime's fused operators; shared by the text and image graphs.

Shapes: `B` rows, `T` positions, `E` model dimensions.
"""

import torch
from torch import Tensor, nn

from triptych_export.graphs.operators import fused_attention, packed_attention
from triptych_training.models.blocks import EncoderLayer


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
        context = packed_attention(frame.enter(x), self.weight, self.bias, lengths, self.heads)
        return self._feed(frame.leave(x, self.layer.attention.output(context)))

    def _feed(self, x: Tensor) -> Tensor:
        frame = self.layer.feedforward_residual
        return frame.leave(x, self.layer.feedforward(frame.enter(x)))


class FirstPositionLayer(nn.Module):
    """Last encoder layer that computes only the first positions: keys and values of all, everything else of those."""

    def __init__(self, layer: EncoderLayer, positions: int = 1) -> None:
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
        frame, last = self.layer.attention_residual, self.layer.feedforward_residual
        entered = frame.enter(x)
        key, value = self.key_value(entered).chunk(2, dim=-1)
        context = fused_attention(self.query(entered[:, : self.positions]), key, value, self.heads)
        y = frame.leave(x[:, : self.positions].flatten(0, 1), self.layer.attention.output(context.flatten(0, 1)))
        return last.leave(y, self.layer.feedforward(last.enter(y)))


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
