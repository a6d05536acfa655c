"""Graphs of a decoder-only model, as modules around the model's own sub-modules, prepared by `fold_gpt`.

All graphs read a part of one row's tokens, or one token of each of many rows, or whole prompts of many rows: what the
attention operator can append to static caches. Shapes: `B` rows, `S` tokens of the chunk, `T` cache positions, `H` heads of
keys and values of `D` dimensions, `E` model dimensions, `V` tokens.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import onnx
import torch
from onnx import TensorProto
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.convolution import convolve
from triptych_export.graphs.cuda_translation import HALF_NEVER
from triptych_export.graphs.layers import attend_causally, first_positions
from triptych_export.graphs.operators import KeyValues, top_k
from triptych_export.graphs.translation import EDITS, GraphSettings, arg_max, block_width, edited, rank, suppress
from triptych_export.graphs.weight_folding import cache_head_dim, cache_layers
from triptych_export.onnx_files.decoder import OnnxGpt
from triptych_serving.runtime.native.library import cached_bytes, native_kernels
from triptych_training.models.attention import limit_softly
from triptych_training.models.gpt import SLOPES, Gpt

PLACES = ("tokens", "positions", "total")
CACHES = ("cache_", "present_")  # beginnings of names of inputs and outputs


@dataclass(frozen=True)
class Chunk:
    """Inputs that say which tokens are read."""

    tokens: Tensor  # `[B, S]` int64. S > 1: a part of one row's tokens, or all tokens of several rows, padded at their ends.
    positions: Tensor  # `[B]` int32, position of each row's last token
    total: Tensor  # `[1]` int32: T, or S for whole rows

    @property
    def starts(self) -> Tensor:
        """Position of each row's first token, `[B]` int32."""
        return first_positions(self.positions, self.total, self.tokens.shape[1])


class CachedGpt(nn.Module):
    """Decoder-only model over static caches."""

    def __init__(self, model: Gpt | OnnxGpt) -> None:
        super().__init__()
        self.model = model

    def forward(self, chunk: Chunk, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Compute hidden states `[B, S, E]`, of a file logits, and the caches with the chunk's keys and values."""
        model = self.model
        if isinstance(model, OnnxGpt):
            return model.trace(chunk.tokens, chunk.starts, cache)
        x = model.embed(chunk.tokens)
        if model.positions is not None:
            places = chunk.starts[:, None] + torch.arange(chunk.tokens.shape[1], dtype=torch.int32)
            x = x + functional.embedding(places, model.positions.weight)
        present: list[Tensor] = []
        for layer, count in zip(model.blocks, cache_layers(model), strict=True):
            past = cache[len(present) : len(present) + 2 * count]
            if layer.convolution is not None:
                x, changed = convolve(layer, x, past, chunk.starts)
            else:
                x, *changed = attend_causally(layer, x, KeyValues(past[0], past[1], 0), chunk.positions, chunk.total)
            present += changed
        return model.norm(x), present

    def last(self, chunk: Chunk, hidden: Tensor) -> Tensor:
        """Return the state of each row's last token, `[B, E]`."""
        rows, length = chunk.tokens.shape
        last = (chunk.positions - chunk.starts).long() + torch.arange(rows) * length
        return hidden.flatten(0, 1).index_select(0, last)


class GenerationGraph(nn.Module):
    """Base of the graphs: names of inputs and outputs besides the caches, decoder and projection."""

    inputs: ClassVar[tuple[str, ...]]
    outputs: ClassVar[tuple[str, ...]]

    def __init__(self, model: Gpt | OnnxGpt, settings: GraphSettings) -> None:
        super().__init__()
        self.decoder, self.projection, self.settings = CachedGpt(model), model.projection, settings
        self.cap = model.config.logit_cap

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits `[..., V]` in float32."""
        return limit_softly(self.projection(hidden).float(), self.cap)


class GenerationStep(GenerationGraph):
    """Step graph: tokens of every row -> most likely next token; caches are updated in place.

    A soft limit of the logits is left out: it changes none of their order.
    """

    inputs = (*PLACES, "forced")
    outputs = ("next",)

    def __init__(self, model: Gpt | OnnxGpt, settings: GraphSettings) -> None:
        super().__init__(model, settings)
        self.projection = suppress(model.projection, settings.suppressed, HALF_NEVER)
        self.columns = block_width(model.projection.out_features)

    def forward(self, places: list[Tensor], forced: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Run one step: the Chunk's fields, a forced next token, or -1 for the arg-max, `[B]` int64, and the caches.

        Returns:
            Next tokens `[B]` int64 and the caches, `[B, H, T, D]` keys and values of every layer.
        """
        chunk = Chunk(*places)
        hidden, present = self.decoder(chunk, cache)
        best = arg_max(self.projection(self.decoder.last(chunk, hidden)), self.columns)
        return torch.where(forced >= 0, forced, best), present


class GenerationSearch(GenerationGraph):
    """Step graph for beams, samples, penalties and scores: log-probabilities instead of the arg-max."""

    inputs = (*PLACES, "forced", *EDITS, "candidates")
    outputs = ("top_log_probabilities", "top_tokens", "forced_log_probabilities", "log_probabilities")

    def forward(
        self, places: list[Tensor], forced: Tensor, edits: list[Tensor], candidates: Tensor, cache: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Run one step; arguments as in GenerationStep and SearchGraph. `forced` has the token to score.

        Returns:
            The C largest log-probabilities `[B, C]`, their tokens `[B, C]`, the forced token's `[B, 1]`, all log-probabilities
            `[B, V]`, and the caches.
        """
        chunk = Chunk(*places)
        hidden, present = self.decoder(chunk, cache)
        log_probabilities = edited(self.logits(self.decoder.last(chunk, hidden)), edits, self.settings)
        return *rank(log_probabilities, candidates, forced), log_probabilities, present


class GenerationScore(GenerationGraph):
    """Score graph: log-probabilities after every token of the chunk."""

    inputs = (*PLACES, "targets", "candidates")
    outputs = ("target_log_probabilities", "top_log_probabilities", "top_tokens")

    def forward(
        self, places: list[Tensor], targets: Tensor, candidates: Tensor, cache: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Read a chunk; `targets` `[B, S]` int64 are the tokens to score, each after the chunk's token at its place.

        Returns:
            The targets' log-probabilities `[B, S]`, the C largest ones `[B*S, C]`, their tokens `[B*S, C]`, and the caches.
        """
        chunk = Chunk(*places)
        hidden, present = self.decoder(chunk, cache)
        log_probabilities = torch.log_softmax(self.logits(hidden.flatten(0, 1)), dim=-1)  # [B*S, V]
        best, best_tokens = top_k(log_probabilities, candidates)
        shape = targets.shape
        of_targets = log_probabilities.gather(1, targets.reshape(-1, 1)).view(shape)
        return of_targets, best, best_tokens, present


def takes_int8_caches(model: Gpt | OnnxGpt) -> bool:
    """Tell whether this process can run a model with int8 caches, which only the native kernels read.

    States of convolutions, and positions that slopes keep in the keys, must stay exact.
    """
    if isinstance(model, OnnxGpt) or model.config.convolution_layers or model.config.positions == SLOPES:
        return False
    return native_kernels(cache_head_dim(model)) is not None


def write_int8_caches(graph: Path, path: Path) -> None:
    """Write a graph again, with int8 caches. Its operators are the same: the kernels know the caches by their type."""
    model = onnx.load(graph, load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        if value.name.startswith(CACHES):
            kind = value.type.tensor_type
            kind.elem_type = TensorProto.INT8
            size = kind.shape.dim[-1]
            size.dim_value = cached_bytes(size.dim_value)
    path.write_bytes(model.SerializeToString(deterministic=True))
