"""Graphs of a translation bundle, as modules around the checkpoint's own sub-modules.

`EncoderGraph` turns a source into the cross-attention keys and values of every decoder layer. `StepGraph` decodes one token of
every row by arg-max; `SearchGraph` is the same step with the outputs that other searches need; their `Short` variants compute a
part of the vocabulary. These expect a model prepared by `fold_scales`. `ScoreGraph` reads a whole target at once. Shapes: `B`
rows, `S` source positions, `T` cache positions, `H` heads of `D`, `L` decoder layers, `E` model dimensions, `V` tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.input_scales import copy_input_scale, mark_input
from triptych_export.graphs.layers import DistanceBias, FusedLayer, UnpackedLayer, packed_bias, packed_weight
from triptych_export.graphs.operators import (
    KeyValues,
    cached_attention,
    fused_attention,
    integer_projection,
    memory_attention,
    packed_attention,
    round_to_int8,
    top_k,
)
from triptych_export.graphs.recurrent import RecurrentDecoder
from triptych_export.graphs.weight_folding import cache_scales
from triptych_export.onnx_files.decoder import Logits, OnnxSeq2Seq, Seq2Seq
from triptych_serving.bundle.manifest import AlignmentHeads
from triptych_training.models.attention import AttentionShape
from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.positions import RelativeBias, split_by_layer
from triptych_training.models.rnn import Rnn
from triptych_training.models.transformer import DecoderLayer, Transformer

Projection = nn.Linear | Logits
NEVER = -1e9  # logit of a suppressed token
BLOCK = 64  # number of shortlist columns is a multiple of this

# Queries `[B, 1, H*D]`, memory, and whether to return the weights -> context `[B, 1, H*D]`, weights `[B, H, 1, S]` or None, and
# keys and values where they must be outputs.
SourceAttention = Callable[[Tensor, KeyValues, bool], tuple[Tensor, Tensor | None, list[Tensor]]]

VECTORS = ("tokens", "positions", "last", "forced")
EDITS = ("edit_tokens", "edit_factors", "edit_offsets")
COLUMNS = ("columns", "column_scales", "column_biases", "column_tokens")
BEST = ("top_log_probabilities", "top_tokens", "forced_log_probabilities", "attention")


@dataclass(frozen=True)
class GraphSettings:
    """Settings of translation graphs besides the model."""

    max_source: int = 0  # capacity of the caches in tokens; not of decoder-only models, whose caches have any
    max_target: int = 0
    suppressed: tuple[int, ...] = ()  # tokens that the arg-max never chooses
    edits_last: bool = False  # edit log-probabilities after the softmax, as `generate` of transformers does
    renormalizes: bool = False  # normalise edited probabilities to a sum of 1; only with `edits_last`
    int8_caches: bool = False  # keys and values are int8; the model has their scales, see `fold_cache_scales`
    joins_sources: bool = False  # the encoder has an input `offsets`; kernels for int8 read several sources in one row
    alignment: AlignmentHeads | None = None  # cross-attention whose mean is the alignment; None: all heads of the last layer


class EncoderGraph(nn.Module):
    """Encoder graph: source ids -> cross-attention keys and values."""

    def __init__(self, model: Transformer, int8_caches: bool = False) -> None:
        super().__init__()
        self.source = SourceEncoder(model)
        self.decoder = model.decoder
        self.int8_caches = int8_caches

    @property
    def takes_sequences(self) -> bool:
        """True if kernels may read several sequences in one row: nothing but positions and attention depends on the places."""
        source = self.source
        return source.embedding.positions is not None and all(isinstance(layer, FusedLayer) for layer in source.layers)

    def forward(self, source: Tensor, lengths: Tensor, offsets: Tensor | None = None) -> Tensor:
        """`[B, S]` int64 and `[B]` int32 -> `[2L, B, H, S, D]`: layer i's keys at 2i, its values at 2i + 1.

        `offsets`, `[S]` or `[1]` int64, are added to the positions 0, 1, ...
        """
        projected = [p for memory in self.decoder.project_memory(self.source(source, lengths, offsets)) for p in memory]
        return torch.stack([round_to_int8(each) for each in projected] if self.int8_caches else projected)


class SourceEncoder(nn.Module):
    """Encoder on fused operators."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        encoder = model.encoder
        self.embedding, self.norm, self.heads = encoder.embedding, encoder.norm, encoder.heads
        self.relative = None if encoder.relative is None else DistanceBias(encoder.relative)
        make = FusedLayer if is_packed(model.config.block.attention, encoder.relative) else UnpackedLayer
        self.layers = nn.ModuleList(make(layer) for layer in encoder.layers if isinstance(layer, EncoderLayer))

    def forward(self, source: Tensor, lengths: Tensor, offsets: Tensor | None = None) -> Tensor:
        """`[B, S]` int64 and `[B]` int32 -> `[B, S, E]`; `offsets` as in EncoderGraph."""
        if offsets is None or self.embedding.positions is None:
            x = self.embedding(source)
        else:
            places = torch.arange(source.shape[1]) + offsets
            x = self.embedding.at(source, functional.embedding(places, self.embedding.positions.weight))
        bias = None if self.relative is None else self.relative(torch.arange(source.shape[1]))
        biases = split_by_layer(bias, self.heads, len(self.layers))
        for layer, own in zip(self.layers, biases, strict=True):
            x = layer(x, lengths) if isinstance(layer, FusedLayer) else layer(x, lengths, own)
        return self.norm(x)


class CachedDecoder(nn.Module):
    """Decoder over static caches, for one position of every row."""

    def __init__(self, model: Transformer, settings: GraphSettings, weights: bool) -> None:
        super().__init__()
        decoder = self.decoder = model.decoder
        self.relative = None if decoder.relative is None else DistanceBias(decoder.relative)
        self.heads = model.config.decoder_block.heads
        self.target_capacity, self.source_capacity = capacity(settings.max_target), capacity(settings.max_source)
        self.weights, self.int8_caches = weights, settings.int8_caches
        every = AlignmentHeads(model.config.decoder_layers - 1, tuple(range(self.heads)))
        self.alignment = settings.alignment or every

    def forward(
        self, places: list[Tensor], cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Compute hidden states `[B, 1, E]`, the caches, and with `weights` the alignment's attention `[B, heads, 1, S]`.

        Behind int8 caches comes the memory, too.

        `places` are the first three of StepGraph's vectors.
        """
        tokens, positions, last = places
        newest, table = tokens[:, None], self.decoder.embedding.positions
        vectors = None if table is None else functional.embedding(positions[:, None], table.weight)
        x = self.decoder.embedding.at(newest, vectors)  # [B, 1, E]
        bias = None if self.relative is None else self.relative.at(positions, self.target_capacity)
        biases = split_by_layer(bias, self.heads, len(self.decoder.layers))
        attend = self.source_attention(x, last)
        present: list[Tensor] = []
        returned: list[Tensor] = []
        attention = None
        for index, layer in enumerate(self.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            weights = self.weights and index == self.alignment.layer
            scales = [cache_scales(part) if self.int8_caches else () for part in (layer.attention, layer.cross_attention)]
            own = KeyValues(cache[2 * index], cache[2 * index + 1], self.target_capacity, scales[0])
            other = KeyValues(memory[2 * index], memory[2 * index + 1], self.source_capacity, scales[1])
            packed = layer.attention.query_key_value(layer.attention_residual.enter(x))
            context, key, value = cached_attention(packed, own, positions, self.heads, biases[index])
            x = layer.attention_residual.leave(x, layer.attention.output(context))
            query = layer.cross_attention.query(layer.cross_attention_residual.enter(x))
            context, found, unchanged = attend(query, other, weights)
            if found is not None:
                attention = found if len(self.alignment.heads) == self.heads else found[:, list(self.alignment.heads)]
            x = layer.cross_attention_residual.leave(x, layer.cross_attention.output(context))
            x = layer.feedforward_residual.around(x, layer.feedforward)
            present += [key, value]
            returned += unchanged
        return self.decoder.finish(x), [*present, *returned], attention

    def source_attention(self, x: Tensor, last: Tensor) -> SourceAttention:
        """Return a function that attends to the source; `last` is the third vector."""
        nothing = x[:, :0]

        def attend(query: Tensor, memory: KeyValues, weights: bool) -> tuple[Tensor, Tensor | None, list[Tensor]]:
            nonlocal nothing
            if nothing.shape[-1] != query.shape[-1]:
                nothing = query[:, :0]
            return memory_attention(query, nothing, memory, last, self.heads, weights)

        return attend


class KeptDecoder(nn.Module):
    """One step of a decoder that is an ONNX file, with CachedDecoder's interface; returns logits `[B, 1, V]`."""

    def __init__(self, model: OnnxSeq2Seq, weights: bool) -> None:
        super().__init__()
        self.model, self.weights = model, weights

    def forward(
        self, places: list[Tensor], cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Compute logits, the caches, and with `weights` the attention `[B, 1, 1, S]`."""
        tokens, positions, last = places
        logits, others = self.model.trace(tokens[:, None], positions, cache, (*memory, last), self.weights)
        attention = others.pop()[:, None] if self.weights else None
        return logits, others, attention


class StepGraph(nn.Module):
    """Step graph: last token of every row -> most likely next token; caches are updated in place."""

    inputs: ClassVar[tuple[str, ...]] = VECTORS
    outputs: ClassVar[tuple[str, ...]] = ("next",)

    def __init__(self, model: Seq2Seq, settings: GraphSettings) -> None:
        super().__init__()
        self.decoder = step_decoder(model, settings, weights=False)
        self.projection = suppress(model.projection, settings.suppressed)
        self.columns = block_width(model.projection.out_features)

    def forward(self, vectors: list[Tensor], cache: list[Tensor], memory: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Run one step.

        Args:
            vectors: for each row its newest token `[B]` int64, that token's position `[B]` int32, the index of the last source
                position `[B]` int32, and a forced next token, or -1 for the arg-max, `[B]` int64.
            cache: `[B, H, T, D]` keys and values of every layer, as EncoderGraph orders them.
            memory: `[B, H, S, D]` cross-attention keys and values, in the same order.

        Returns:
            Next tokens `[B]` int64 and the caches.
        """
        *places, forced = vectors
        hidden, present, _ = self.decoder(places, cache, memory)
        best = arg_max(self.projection(hidden.squeeze(1)), self.columns)
        return torch.where(forced >= 0, forced, best), present


class ShortStepGraph(StepGraph):
    """StepGraph whose output projection is an input: the columns that the current rows may need."""

    inputs: ClassVar[tuple[str, ...]] = (*VECTORS, *COLUMNS)

    def __init__(self, model: Transformer, settings: GraphSettings) -> None:
        nn.Module.__init__(self)
        self.decoder = CachedDecoder(model, settings, weights=False)
        self.whole = model.projection

    def forward(  # type: ignore[override]
        self, vectors: list[Tensor], columns: list[Tensor], cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Run one step.

        Args:
            vectors, cache, memory: as in StepGraph.
            columns: weights `[E, N]` int8, scales `[N]`, biases `[N]` (very small for padding) and token ids `[N]` int64 of
                the columns; N is a multiple of BLOCK.

        Returns:
            As StepGraph.
        """
        *places, forced = vectors
        hidden, present, _ = self.decoder(places, cache, memory)
        weights, scales, biases, ids = columns
        marked = mark_input(hidden.squeeze(1), self.whole)
        best = ids[two_stage_argmax(integer_projection(marked, weights, scales, biases), BLOCK)]
        return torch.where(forced >= 0, forced, best), present


class SearchGraph(nn.Module):
    """Step graph for beams, samples, penalties, scores and alignments: log-probabilities instead of the arg-max."""

    inputs: ClassVar[tuple[str, ...]] = (*VECTORS, *EDITS, "candidates")
    outputs: ClassVar[tuple[str, ...]] = (*BEST, "log_probabilities")

    def __init__(self, model: Seq2Seq, settings: GraphSettings) -> None:
        super().__init__()
        self.decoder = step_decoder(model, settings, weights=True)
        self.projection = model.projection
        self.settings = settings

    def forward(
        self, vectors: list[Tensor], edits: list[Tensor], candidates: Tensor, cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Run one step.

        Args:
            vectors: as in StepGraph, but the last one holds the token whose log-probability is returned.
            edits: tokens `[B, E]` int64, factors `[B, E]` and offsets `[B, E]`: a token's logit x becomes
                (x / factor if x > 0 else x * factor) + offset before the softmax (the factor is the repetition penalty of
                Keskar et al. 2019). With `edits_last`, x is the log-probability; if the factor is negative, its absolute value
                is applied to the logit, normalised with the softmax of all unedited logits. Equal tokens of a row have equal
                edits.
            candidates: `[1]` int64, C.
            cache, memory: as in StepGraph.

        Returns:
            The C largest log-probabilities `[B, C]`, their tokens `[B, C]`, the forced token's `[B, 1]`, the mean
            of the alignment heads' attention to the source, `[B, S]`, all log-probabilities `[B, V]`, and the caches.
        """
        *places, forced = vectors
        hidden, present, attention = self.decoder(places, cache, memory)
        assert attention is not None
        log_probabilities = edited(self.projection(hidden.squeeze(1)).float(), edits, self.settings)
        best, best_tokens, of_forced = rank(log_probabilities, candidates, forced)
        return best, best_tokens, of_forced, attention.squeeze(2).mean(1), log_probabilities, present


class ShortSearchGraph(SearchGraph):
    """SearchGraph whose output projection is an input, as in ShortStepGraph; probabilities are over these columns."""

    inputs: ClassVar[tuple[str, ...]] = (*VECTORS, *EDITS, "candidates", *COLUMNS)
    outputs: ClassVar[tuple[str, ...]] = BEST

    def __init__(self, model: Transformer, settings: GraphSettings) -> None:
        nn.Module.__init__(self)
        self.decoder = CachedDecoder(model, settings, weights=True)
        self.whole = model.projection
        self.settings = settings

    def forward(  # type: ignore[override]
        self,
        vectors: list[Tensor],
        edits: list[Tensor],
        candidates: Tensor,
        columns: list[Tensor],
        cache: list[Tensor],
        memory: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Run one step; as SearchGraph, without all log-probabilities.

        `columns` are ShortStepGraph's. The forced token and the edited ones are given as indices of columns.
        """
        *places, forced = vectors
        hidden, present, attention = self.decoder(places, cache, memory)
        assert attention is not None
        weights, scales, biases, ids = columns
        logits = integer_projection(mark_input(hidden.squeeze(1), self.whole), weights, scales, biases)
        log_probabilities = edited(logits, edits, self.settings)
        best, found, of_forced = rank(log_probabilities, candidates, forced)
        return best, ids[found], of_forced, attention.squeeze(2).mean(1), present


class ScoreGraph(nn.Module):
    """Score graph: source and target -> log-probability of every target token, in one run (teacher forcing)."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.source = SourceEncoder(model)
        decoder = self.decoder = model.decoder
        self.projection = model.projection
        self.relative = None if decoder.relative is None else DistanceBias(decoder.relative)
        packed = is_packed(model.config.decoder_block.attention, decoder.relative)
        self.layers = nn.ModuleList(TargetLayer(layer, packed) for layer in decoder.layers if isinstance(layer, DecoderLayer))

    def forward(self, source: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """`[B, S]` int64, `[B]` int32 and `[B, 1+T]` int64, start token first -> `[B, T]`, of all tokens but the first.

        Values after the end of a row's target are padding and have no meaning.
        """
        memory = self.source(source, lengths)
        mask = (torch.arange(source.shape[1], dtype=torch.int32) < lengths[:, None]).int()
        inputs = targets[:, :-1]
        x = self.decoder.embedding(inputs)
        bias = None if self.relative is None else self.relative(torch.arange(inputs.shape[1]))
        biases = split_by_layer(bias, self.decoder.heads, len(self.layers))
        for layer, own in zip(self.layers, biases, strict=True):
            x = layer(x, memory, mask, own)
        logits = self.projection(self.decoder.finish(x).flatten(0, 1)).float()  # [B*T, V]
        log_probabilities = torch.log_softmax(logits, dim=-1).gather(1, targets[:, 1:].reshape(-1, 1))
        return log_probabilities.view(targets.shape[0], -1)


class TargetLayer(nn.Module):
    """Decoder layer over all positions of its targets at once."""

    def __init__(self, layer: DecoderLayer, packed: bool) -> None:
        super().__init__()
        self.layer = layer
        self.weight = packed_weight(layer.attention.query_key_value) if packed else None
        self.bias = packed_bias(layer.attention.query_key_value) if packed else None

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """`[B, T, E]` -> `[B, T, E]`; `memory` `[B, S, E]`, its `mask` `[B, S]` int32, `bias` `[1, H, T, T]`."""
        layer = self.layer
        frame, own = layer.attention_residual, layer.attention
        x = frame.leave(x, own.output(self._attend_to_targets(frame.enter(x), bias)))
        frame, cross = layer.cross_attention_residual, layer.cross_attention
        key, value = cross.key_value(memory).chunk(2, dim=-1)
        context = fused_attention(cross.query(frame.enter(x)), key, value, cross.heads, mask, cross.scale)
        x = frame.leave(x, cross.output(context))
        return layer.feedforward_residual.around(x, layer.feedforward)

    def _attend_to_targets(self, x: Tensor, bias: Tensor | None) -> Tensor:
        own = self.layer.attention
        if self.weight is not None and self.bias is not None:
            marked = mark_input(x, own.query_key_value)
            return packed_attention(marked, self.weight, self.bias, None, own.heads, causal=True)
        query, key, value = own.query_key_value(x).chunk(3, dim=-1)
        return fused_attention(query, key, value, own.heads, None, own.scale, bias, causal=True)


def step_decoder(model: Seq2Seq, settings: GraphSettings, weights: bool) -> CachedDecoder | RecurrentDecoder | KeptDecoder:
    """Make the decoder of a step graph."""
    if isinstance(model, OnnxSeq2Seq):
        return KeptDecoder(model, weights)
    return RecurrentDecoder(model) if isinstance(model, Rnn) else CachedDecoder(model, settings, weights)


def capacity(tokens: int) -> int:
    """Return the cache capacity: at least 2, since the runtime treats a step over one position as a prompt."""
    return max(2, tokens)


def is_packed(shape: AttentionShape, relative: RelativeBias | None) -> bool:
    """Tell whether the packed attention operator supports this self-attention."""
    return shape.scaled and shape.inner_dim == shape.model_dim and relative is None


def arg_max(logits: Tensor, columns: int) -> Tensor:
    """Return the first best token, `[B, V]` -> `[B]`, in two stages if `columns` is set."""
    if columns:
        return two_stage_argmax(logits, columns)
    _, best = top_k(logits, torch.ones(1, dtype=torch.int64))
    return best.squeeze(1)


def two_stage_argmax(logits: Tensor, columns: int) -> Tensor:
    """Return the best token, `[B, V]` -> `[B]`: first the best block of `columns` tokens, then the best within it.

    ReduceMax is vectorised where ONNX Runtime's ArgMax is not: 36 us against 311 for 32 x 16,000. Ties go to the first token,
    as with one arg-max.
    """
    blocks = torch.unflatten(logits, 1, (-1, columns))  # [B, V/columns, columns]
    block: Tensor = blocks.amax(-1).argmax(-1)  # [B]
    best = blocks.gather(1, block[:, None, None].expand(-1, 1, columns)).squeeze(1)  # [B, columns]
    return block * columns + best.argmax(-1)


def block_width(size: int) -> int:
    """Choose a block width near the vocabulary's square root that divides it; 0 if there is none.

    Without one, TopK takes 133 us for 32 x 16,000; padding the projection would store it twice.
    """
    widths = [width for width in range(32, 1025) if size % width == 0] if size > 256 else [size]
    return min(widths, key=lambda width: abs(width - math.isqrt(size)), default=0)


def edited(logits: Tensor, edits: list[Tensor], settings: GraphSettings) -> Tensor:
    """Compute edited log-probabilities `[B, V]`."""
    tokens, factors, offsets = edits
    given = logits.gather(1, tokens)
    if not settings.edits_last:
        edited = logits.scatter(1, tokens, _edit(given, factors, offsets))
        return torch.log_softmax(edited, dim=-1)
    log_probabilities = torch.log_softmax(logits, dim=-1)
    likely = log_probabilities.gather(1, tokens)
    of_likely, of_given = _edit(likely, factors, offsets), _edit(given, -factors, offsets)
    edited = torch.where(factors > 0, of_likely, of_given - (given - likely))  # given - likely is the log of the softmax's sum
    log_probabilities = log_probabilities.scatter(1, tokens, edited)
    return torch.log_softmax(log_probabilities, dim=-1) if settings.renormalizes else log_probabilities


def _edit(values: Tensor, factors: Tensor, offsets: Tensor) -> Tensor:
    return torch.where(values > 0, values / factors, values * factors) + offsets


def rank(log_probabilities: Tensor, candidates: Tensor, forced: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best values, their indices, and the forced token's value."""
    return *top_k(log_probabilities, candidates), log_probabilities.gather(1, forced[:, None])


@torch.no_grad()
def suppress(projection: Projection, tokens: tuple[int, ...], never: float = NEVER) -> Projection:
    """Copy a projection with a bias that excludes some tokens."""
    if not tokens:
        return projection
    bias = torch.zeros(projection.out_features) if projection.bias is None else projection.bias.detach().clone()
    bias[list(tokens)] = never
    if isinstance(projection, Logits):
        return Logits(projection.out_features, bias)
    result = nn.Linear(projection.in_features, projection.out_features, device="meta")
    result.weight, result.bias = projection.weight, nn.Parameter(bias, requires_grad=False)
    copy_input_scale(projection, result)
    return result
