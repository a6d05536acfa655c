"""The graphs of a translation bundle, as modules around the checkpoint's own sub-modules.

`EncoderGraph` turns a source into the cross-attention keys and values of every decoder layer. `StepGraph` decodes one token of
every row by arg-max; `SearchGraph` is the same step with everything that other searches ask for; the short ones of both look at
a part of the vocabulary. These expect a model prepared by `fold_scales`. `ScoreGraph` reads a whole target at once. Shapes: `B`
rows, `S` source positions, `T` cache positions, `H` heads of `D`, `L` decoder layers, `E` = H*D, `V` tokens.
"""

import copy
import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.fused_layer import FusedLayer
from triptych_export.operators import (
    KeyValues,
    cached_attention,
    integer_projection,
    masked_attention,
    memory_attention,
    packed_attention,
    top_k,
)
from triptych_training.attention import CrossAttention, SelfAttention
from triptych_training.blocks import EncoderLayer
from triptych_training.transformer import DecoderLayer, Transformer

NEVER = -1e9  # logit of a token that only fills the vocabulary up
BLOCK = 64  # columns of a shortlist come in such blocks

VECTORS = ("tokens", "positions", "last", "forced")
EDITS = ("edit_tokens", "edit_factors", "edit_offsets")
COLUMNS = ("columns", "column_scales", "column_biases", "column_tokens")
BEST = ("top_log_probabilities", "top_tokens", "forced_log_probabilities", "attention")


@torch.no_grad()
def fold_scales(model: Transformer) -> Transformer:
    """A copy whose decoder's queries carry the 1/sqrt(D), so that no operator multiplies by it at every step."""
    model = copy.deepcopy(model).eval()
    for module in model.decoder.modules():
        if isinstance(module, SelfAttention):
            width = module.output.in_features
            scale = (width // module.heads) ** -0.5
            module.query_key_value.weight[:width].mul_(scale)
            module.query_key_value.bias[:width].mul_(scale)
        elif isinstance(module, CrossAttention):
            scale = (module.output.in_features // module.heads) ** -0.5
            module.query.weight.mul_(scale)
            module.query.bias.mul_(scale)
    return model


class EncoderGraph(nn.Module):
    """Source ids -> cross-attention keys and values."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.source = SourceEncoder(model)
        self.decoder = model.decoder

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """`[B, S]` int64 and `[B]` int32 -> `[2L, B, H, S, D]`: layer i's keys at 2i, its values at 2i + 1."""
        projected = [p for memory in self.decoder.project_memory(self.source(source, lengths)) for p in memory]
        return torch.stack(projected)


class SourceEncoder(nn.Module):
    """The encoder on fused layers."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.embedding, self.norm = model.encoder.embedding, model.encoder.norm
        self.layers = nn.ModuleList(_fuse(layer) for layer in model.encoder.layers)

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """`[B, S]` int64 and `[B]` int32 -> `[B, S, E]`."""
        x = self.embedding(source)
        for layer in self.layers:
            x = layer(x, lengths)
        normed: Tensor = self.norm(x)
        return normed


class CachedDecoder(nn.Module):
    """One position of every row through the decoder's layers, over static caches."""

    def __init__(self, model: Transformer, weights: bool) -> None:
        super().__init__()
        self.decoder = model.decoder
        self.heads = model.config.heads
        self.capacity = capacity(model)
        self.weights = weights

    def forward(
        self, places: list[Tensor], cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Hidden states `[B, 1, E]`, the caches, and the last layer's attention to the source `[B, H, 1, S]` if asked for.

        `places` are the first three of StepGraph's vectors.
        """
        tokens, positions, last = places
        embedding = self.decoder.embedding
        x = embedding.at(tokens[:, None], functional.embedding(positions[:, None], embedding.positions.weight))  # [B, 1, E]
        nothing = x[:, :0]
        present: list[Tensor] = []
        attention = None
        for index, layer in enumerate(self.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            weights = self.weights and index == len(self.decoder.layers) - 1
            own, other = (KeyValues(each[2 * index], each[2 * index + 1], self.capacity) for each in (cache, memory))
            packed = layer.attention.query_key_value(layer.attention_residual.enter(x))
            context, key, value = cached_attention(packed, own, positions, self.heads)
            x = layer.attention_residual.leave(x, layer.attention.output(context))
            query = layer.cross_attention.query(layer.cross_attention_residual.enter(x))
            context, attention = memory_attention(query, nothing, other, last, self.heads, weights)
            x = layer.cross_attention_residual.leave(x, layer.cross_attention.output(context))
            x = layer.feedforward_residual.leave(x, layer.feedforward(layer.feedforward_residual.enter(x)))
            present += [key, value]
        return self.decoder.norm(x), present, attention


class StepGraph(nn.Module):
    """The last token of every row -> the likeliest next one, the caches updated in place."""

    inputs: ClassVar[tuple[str, ...]] = VECTORS
    outputs: ClassVar[tuple[str, ...]] = ("next",)

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.decoder = CachedDecoder(model, weights=False)
        self.projection, self.columns = _blocked(model.projection)

    def forward(self, vectors: list[Tensor], cache: list[Tensor], memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """One step.

        Args:
            vectors: each row's newest token `[B]` int64, where that stands `[B]` int32, the index of its last source position
                `[B]` int32, and the token to answer instead of the arg-max, or -1, `[B]` int64.
            cache: `[B, H, T, D]` keys and values of every layer, as EncoderGraph orders them.
            memory: `[B, H, S, D]` cross-attention keys and values, in the same order.

        Returns:
            Next tokens `[B]` int64 and the caches.
        """
        *places, forced = vectors
        hidden, present, _ = self.decoder(places, cache, memory)
        best = two_stage_argmax(self.projection(hidden.squeeze(1)), self.columns)
        return torch.where(forced >= 0, forced, best), present


class SearchGraph(nn.Module):
    """The same step for beams, samples, penalties, scores and alignments: log-probabilities instead of the arg-max."""

    inputs: ClassVar[tuple[str, ...]] = (*VECTORS, *EDITS, "candidates")
    outputs: ClassVar[tuple[str, ...]] = (*BEST, "log_probabilities")

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.decoder = CachedDecoder(model, weights=True)
        self.projection = model.projection

    def forward(
        self,
        vectors: list[Tensor],
        edits: list[Tensor],
        candidates: Tensor,
        cache: list[Tensor],
        memory: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """One step.

        Args:
            vectors: as StepGraph, but the last is the token whose log-probability is asked for.
            cache, memory: as StepGraph.
            edits: tokens `[B, E]` int64, factors `[B, E]` and offsets `[B, E]`: a token's logit x becomes
                (x / factor if x > 0 else x * factor) + offset before the softmax (the factor is the repetition penalty of
                Keskar et al. 2019). Equal tokens of a row have equal edits.
            candidates: `[1]` int64, C.

        Returns:
            The C largest log-probabilities `[B, C]`, their tokens `[B, C]`, the forced token's `[B, 1]`, the last layer's
            attention to the source, mean over heads, `[B, S]`, all log-probabilities `[B, V]`, and the caches.
        """
        *places, forced = vectors
        hidden, present, attention = self.decoder(places, cache, memory)
        assert attention is not None
        log_probabilities = torch.log_softmax(_edit(self.projection(hidden.squeeze(1)), *edits), dim=-1)
        best, best_tokens, of_forced = _rank(log_probabilities, candidates, forced)
        return best, best_tokens, of_forced, attention.squeeze(2).mean(1), log_probabilities, present


class ShortStepGraph(nn.Module):
    """StepGraph with some columns of the output projection, which are inputs: those that the rows at hand may need."""

    inputs: ClassVar[tuple[str, ...]] = (*VECTORS, *COLUMNS)
    outputs: ClassVar[tuple[str, ...]] = ("next",)

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.decoder = CachedDecoder(model, weights=False)

    def forward(
        self,
        vectors: list[Tensor],
        columns: list[Tensor],
        cache: list[Tensor],
        memory: list[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """One step.

        Args:
            vectors, cache, memory: as StepGraph.
            columns: weights `[E, N]` int8, scales `[N]`, biases `[N]` (very small for a column that only fills up) and the
                tokens that they stand for, `[N]` int64; N is a multiple of BLOCK.

        Returns:
            As StepGraph.
        """
        *places, forced = vectors
        hidden, present, _ = self.decoder(places, cache, memory)
        weights, scales, biases, ids = columns
        best = ids[two_stage_argmax(integer_projection(hidden.squeeze(1), weights, scales, biases), BLOCK)]
        return torch.where(forced >= 0, forced, best), present


class ShortSearchGraph(nn.Module):
    """SearchGraph with some columns of the output projection, as ShortStepGraph; probabilities are among these columns."""

    inputs: ClassVar[tuple[str, ...]] = (*VECTORS, *EDITS, "candidates", *COLUMNS)
    outputs: ClassVar[tuple[str, ...]] = BEST

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.decoder = CachedDecoder(model, weights=True)

    def forward(
        self,
        vectors: list[Tensor],
        edits: list[Tensor],
        candidates: Tensor,
        columns: list[Tensor],
        cache: list[Tensor],
        memory: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """One step.

        Args:
            vectors, edits: as SearchGraph, but with numbers of columns for the forced token and the edited ones.
            candidates, cache, memory: as SearchGraph.
            columns: as ShortStepGraph.

        Returns:
            As SearchGraph, without all log-probabilities.
        """
        *places, forced = vectors
        hidden, present, attention = self.decoder(places, cache, memory)
        assert attention is not None
        weights, scales, biases, ids = columns
        logits = integer_projection(hidden.squeeze(1), weights, scales, biases)
        log_probabilities = torch.log_softmax(_edit(logits, *edits), dim=-1)
        best, found, of_forced = _rank(log_probabilities, candidates, forced)
        return best, ids[found], of_forced, attention.squeeze(2).mean(1), present


class ScoreGraph(nn.Module):
    """Source and target -> the log-probability of every target token, in one run (teacher forcing)."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.source = SourceEncoder(model)
        self.decoder, self.projection = model.decoder, model.projection
        self.heads = model.config.heads
        self.packed = nn.ParameterList(_packed_weight(layer.attention) for layer in _decoder_layers(model))

    def forward(self, source: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """`[B, S]` int64, `[B]` int32 and `[B, 1+T]` int64, start token first -> `[B, T]`, of all tokens but the first.

        What a row has behind its target is padding: its numbers mean nothing and change nothing.
        """
        memory = self.source(source, lengths)
        mask = (torch.arange(source.shape[1], dtype=torch.int32) < lengths[:, None]).int()
        x = self.decoder.embedding(targets[:, :-1])
        for layer, weight in zip(self.decoder.layers, self.packed, strict=True):
            assert isinstance(layer, DecoderLayer)
            x = self._layer(layer, weight, x, memory, mask)
        logits = self.projection(self.decoder.norm(x).flatten(0, 1))  # [B*T, V]
        log_probabilities = torch.log_softmax(logits, dim=-1).gather(1, targets[:, 1:].reshape(-1, 1))
        return log_probabilities.view(targets.shape[0], -1)

    def _layer(self, layer: DecoderLayer, weight: Tensor, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        frame, own = layer.attention_residual, layer.attention
        context = packed_attention(frame.enter(x), weight, own.query_key_value.bias, None, self.heads, causal=True)
        x = frame.leave(x, own.output(context))
        frame, cross = layer.cross_attention_residual, layer.cross_attention
        key, value = cross.key_value(memory).chunk(2, dim=-1)
        context = masked_attention(cross.query(frame.enter(x)), key, value, mask, self.heads)
        x = frame.leave(x, cross.output(context))
        frame = layer.feedforward_residual
        return frame.leave(x, layer.feedforward(frame.enter(x)))


def capacity(model: Transformer) -> int:
    """Positions of every cache: of one position alone the runtime would take a step for a whole prompt."""
    return max(2, model.config.max_positions)


def two_stage_argmax(logits: Tensor, columns: int) -> Tensor:
    """`[B, V]` -> `[B]`: the best block of `columns` first, then the best within it.

    ReduceMax is vectorised where ONNX Runtime's ArgMax is not: 36 us against 311 for 32 x 16,000. Ties go to the first token,
    as with one arg-max.
    """
    blocks = torch.unflatten(logits, 1, (-1, columns))  # [B, V/columns, columns]
    block: Tensor = blocks.amax(-1).argmax(-1)  # [B]
    best = blocks.gather(1, block[:, None, None].expand(-1, 1, columns)).squeeze(1)  # [B, columns]
    return block * columns + best.argmax(-1)


def _edit(logits: Tensor, tokens: Tensor, factors: Tensor, offsets: Tensor) -> Tensor:
    given = logits.gather(1, tokens)
    edited = torch.where(given > 0, given / factors, given * factors) + offsets
    return logits.scatter(1, tokens, edited)


def _rank(log_probabilities: Tensor, candidates: Tensor, forced: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best, where they stand, and the forced one's."""
    return *top_k(log_probabilities, candidates), log_probabilities.gather(1, forced[:, None])


def _blocked(projection: nn.Linear) -> tuple[nn.Linear, int]:
    """The projection with a vocabulary that falls into equal blocks, and the block's width; filled up where needed."""
    size, width = projection.weight.shape
    columns = min(range(32, 257), key=lambda c: (size % c != 0, abs(c - math.isqrt(size)))) if size > 256 else size
    missing = -size % columns
    if not missing and projection.bias is None:
        return projection, columns
    filled = nn.Linear(width, size + missing)
    with torch.no_grad():
        filled.weight.zero_()
        filled.weight[:size] = projection.weight
        filled.bias.fill_(NEVER)
        filled.bias[:size] = projection.bias if projection.bias is not None else 0.0
    return filled, columns


def _fuse(layer: nn.Module) -> FusedLayer:
    assert isinstance(layer, EncoderLayer)
    return FusedLayer(layer)


def _decoder_layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]


def _packed_weight(attention: SelfAttention) -> nn.Parameter:
    return nn.Parameter(attention.query_key_value.weight.detach().t().contiguous())  # as the operator wants it
