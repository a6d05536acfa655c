"""Translation graphs for CUDA: float16, with a step whose outputs are the next step's inputs.

They differ from `graphs.translation` in this:
- **The step feeds itself.** `next` may be bound to the memory of `tokens`, `advanced` to that of `positions`, so that a device
  runs step after step without the host. `advanced` is computed from `next`, so every node that reads a position runs before it
  is overwritten. An idle row advances to the last position and stays there.
- **Memory** is `[B, 1, S, H*D]`, the layout of the CUDA kernels (see `padded_attention`); a row is contiguous.
- **`lengths`** of the sources replace the index of the last source position.
- **Kernels.** Every node of a step has a CUDA kernel for its types, and none needs a number from the host: none is made from
  shapes. A table in the tests lists them. GroupQueryAttention also takes T5's attention bias, off its fast path.
- **32 bits** for the softmax over the vocabulary and for returned attention weights. Logits are products of 16 bits, summed in
  32: of 54,389 teacher-forced tokens 99.936 % equalled PyTorch's; with a projection in 32 bits 99.939 %.

Shapes as in `graphs.translation`.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.operators import KeyValues, padded_attention
from triptych_export.graphs.translation import (
    EDITS,
    CachedDecoder,
    GraphSettings,
    SearchGraph,
    SourceAttention,
    SourceEncoder,
    StepGraph,
    capacity,
    suppress,
)
from triptych_training.models.transformer import DecoderLayer, Transformer

HALF_NEVER = -3e4  # logit of a suppressed token
SELF_VECTORS = ("tokens", "positions", "lengths", "forced")


class HalfEncoderGraph(nn.Module):
    """Encoder graph: source ids -> cross-attention keys and values, with concatenated heads."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.source = SourceEncoder(model)
        self.projections = nn.ModuleList(
            layer.cross_attention.key_value for layer in model.decoder.layers if isinstance(layer, DecoderLayer)
        )

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """`[B, S]` int64 and `[B]` int32 -> `[2L, B, 1, S, H*D]`: layer i's keys at 2i, its values at 2i + 1."""
        memory = self.source(source, lengths)
        return torch.stack([part[:, None] for each in self.projections for part in each(memory).chunk(2, dim=-1)])


class HalfDecoder(CachedDecoder):
    """Decoder for one position of every row; its third vector holds the source lengths."""

    def source_attention(self, x: Tensor, last: Tensor) -> SourceAttention:
        def attend(query: Tensor, memory: KeyValues, weights: bool) -> tuple[Tensor, Tensor | None, list[Tensor]]:
            context = padded_attention(query, memory, last, self.heads)
            return context, attention_weights(query, memory.key, last, self.heads) if weights else None, []

        return attend


class HalfStepGraph(StepGraph):
    """Step graph: last token of every row -> most likely next token and its position; caches are updated in place."""

    inputs: ClassVar[tuple[str, ...]] = SELF_VECTORS
    outputs: ClassVar[tuple[str, ...]] = ("next", "advanced")
    ones: Tensor  # [V, 1]

    def __init__(self, model: Transformer, settings: GraphSettings) -> None:
        super().__init__(model, settings)
        self.decoder = HalfDecoder(model, settings, weights=False)
        self.projection = suppress(model.projection, settings.suppressed, HALF_NEVER)
        self.last = capacity(settings.max_target) - 1
        # Adding a 1 that is looked up by the next token makes `advanced` depend on `next`. A comparison and a cast would do the
        # same with one more kernel.
        self.register_buffer("ones", torch.ones(model.projection.out_features, 1, dtype=torch.int32))

    def forward(  # type: ignore[override]
        self, vectors: list[Tensor], cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Run one step.

        Args:
            vectors: for each row its newest token `[B]` int64, that token's position `[B]` int32, the source's length `[B]`
                int64, and a forced next token, or -1 for the arg-max, `[B]` int64.
            cache: `[B, H, T, D]` keys and values of every layer, as HalfEncoderGraph orders them.
            memory: `[B, 1, S, H*D]` cross-attention keys and values, in the same order.

        Returns:
            Next tokens `[B]` int64, the next positions `[B]` int32, at most T - 1, and the caches.
        """
        *places, forced = vectors
        hidden, present, _ = self.decoder(places, cache, memory)
        best = self.projection(hidden.squeeze(1)).argmax(-1)  # one kernel on CUDA; two stages would be eight
        following = torch.where(forced >= 0, forced, best)
        grown = vectors[1] + functional.embedding(following, self.ones).squeeze(1)
        return following, torch.minimum(grown, torch.tensor(self.last, dtype=torch.int32)), present


class HalfSearchGraph(SearchGraph):
    """Step graph for beam search and sampling; positions come from the host."""

    inputs: ClassVar[tuple[str, ...]] = (*SELF_VECTORS, *EDITS, "candidates")

    def __init__(self, model: Transformer, settings: GraphSettings) -> None:
        super().__init__(model, settings)
        self.decoder = HalfDecoder(model, settings, weights=True)


def attention_weights(query: Tensor, key: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Compute attention weights of `padded_attention`, which the CUDA kernels do not return.

    `query` `[B, 1, H*D]` carries the 1/sqrt(D); `key` is `[B, 1, S, H*D]`, `lengths` `[B]` int64.

    Returns:
        `[B, H, 1, S]` float32, zeros from each length on.
    """
    queries = torch.unflatten(query, 2, (heads, -1)).transpose(1, 2)  # [B, H, 1, D]
    keys = torch.unflatten(key.squeeze(1), 2, (heads, -1)).permute(0, 2, 3, 1)  # [B, H, D, S]
    padding = torch.arange(key.shape[2]) >= lengths[:, None, None, None]  # [B, 1, 1, S]
    scores = torch.matmul(queries, keys).float().masked_fill(padding, -torch.inf)
    return torch.softmax(scores, dim=-1)
