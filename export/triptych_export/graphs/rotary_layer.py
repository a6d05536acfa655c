"""Encoder layer of ModernBERT on ONNX Runtime's fused operators.

Shapes: `B` rows, `T` positions, `E` model dimensions.
"""

from torch import Tensor, nn

from triptych_export.graphs.operators import fused_attention, rotary_embedding
from triptych_training.models.modernbert import ModernBertLayer, RotaryAttention


class RotaryLayer(nn.Module):
    """Encoder layer with one projection, two rotations and one attention operator."""

    def __init__(self, layer: ModernBertLayer) -> None:
        super().__init__()
        self.layer = layer
        assert isinstance(layer.attention, RotaryAttention)
        self.projection, self.rotary = layer.attention.query_key_value, layer.attention.rotary
        self.heads = layer.attention.heads

    def forward(self, x: Tensor, lengths: Tensor, bias: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `lengths` `[B]` int32 bounds each row, `bias` `[1, 1, T, T]` is added to the scores."""
        frame, last = self.layer.attention_residual, self.layer.feedforward_residual
        query, key, value = self.projection(frame.enter(x)).chunk(3, dim=-1)
        query, key = (rotary_embedding(each, self.rotary.cosines, self.rotary.sines) for each in (query, key))
        context = fused_attention(query, key, value, self.heads, lengths, bias=bias)
        x = frame.leave(x, self.layer.attention.output(context))
        return last.leave(x, self.layer.feedforward(last.enter(x)))
