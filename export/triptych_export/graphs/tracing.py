"""Tracing of PyTorch modules to ONNX graphs."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from triptych_export.graphs.cuda_translation import HalfEncoderGraph, HalfSearchGraph, HalfStepGraph
from triptych_export.graphs.half import halve
from triptych_export.graphs.image import ImageGraph
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.operators import DOMAIN
from triptych_export.graphs.skip_norms import fuse_skip_norms
from triptych_export.graphs.text import TextGraph
from triptych_export.graphs.translation import (
    BLOCK,
    EncoderGraph,
    GraphSettings,
    ScoreGraph,
    SearchGraph,
    ShortSearchGraph,
    ShortStepGraph,
    StepGraph,
    capacity,
)
from triptych_export.graphs.weight_folding import head_dim
from triptych_training.models.transformer import Transformer

OPSET = 21
HALF_OPSET = 24  # of graphs for CUDA: the first with `nonpad_kv_seqlen`
StepModule = StepGraph | SearchGraph | ShortStepGraph | ShortSearchGraph
EXAMPLE_ROWS, EXAMPLE_SOURCE = 3, 7  # any sizes but 0 and 1, which the tracer would take for constants
EXAMPLE_MASKS, EXAMPLE_TOP, EXAMPLE_EDITS, EXAMPLE_TARGET, EXAMPLE_BLOCKS = 5, 2, 4, 6, 3
RANKED = ("scores", "tokens", "labels", "top_log_probabilities", "top_tokens")  # outputs `[N, k]`


def trace_encoder(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the encoder graph of a scale-folded model, dynamic in rows and source length."""
    return _trace_encoder(EncoderGraph(model), decoding)


def trace_half_encoder(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the same graph for CUDA."""
    return _trace_encoder(halve(HalfEncoderGraph(model)), decoding, HALF_OPSET)


def _trace_encoder(graph: nn.Module, decoding: GraphSettings, opset: int = OPSET) -> Graph:
    source, lengths, shapes = _source(decoding)
    return _trace(graph, (source, lengths), shapes, ["source", "lengths"], ["memory"], opset)


def trace_step(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the step graph of a scale-folded model, dynamic in rows."""
    return _Step(model, decoding).trace(StepGraph(model, decoding))


def trace_search(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the search graph of a scale-folded model, dynamic in rows, edits and candidates."""
    return _Step(model, decoding).trace(SearchGraph(model, decoding), _Step.edits())


def trace_half_step(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the CUDA step graph of a scale-folded model, dynamic in rows."""
    return _HalfStep(model, decoding).trace(halve(HalfStepGraph(model, decoding)))


def trace_half_search(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the CUDA search graph of a scale-folded model, dynamic in rows, edits and candidates."""
    return _HalfStep(model, decoding).trace(halve(HalfSearchGraph(model, decoding)), _Step.edits())


def trace_short_step(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the step graph whose output projection is an input, dynamic in rows and columns."""
    step = _Step(model, decoding)
    return step.trace(ShortStepGraph(model, decoding), step.columns())


def trace_short_search(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the search graph whose output projection is an input, dynamic in rows, edits, candidates and columns."""
    step = _Step(model, decoding)
    return step.trace(ShortSearchGraph(model, decoding), _Step.edits(), step.columns())


def trace_score(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the score graph, dynamic in rows and both lengths."""
    return _trace_score(ScoreGraph(model), decoding)


def trace_half_score(model: Transformer, decoding: GraphSettings) -> Graph:
    """Trace the same graph for CUDA."""
    return _trace_score(halve(ScoreGraph(model)), decoding, HALF_OPSET)


def _trace_score(graph: nn.Module, decoding: GraphSettings, opset: int = OPSET) -> Graph:
    source, lengths, shapes = _source(decoding)
    targets = torch.zeros(EXAMPLE_ROWS, EXAMPLE_TARGET, dtype=torch.int64)
    length = torch.export.Dim("target_length", min=2, max=decoding.max_target + 1)
    names = ["source", "lengths", "targets"]
    shapes = (*shapes, {0: shapes[0][0], 1: length})
    return _trace(graph, (source, lengths, targets), shapes, names, ["log_probabilities"], opset)


def _source(decoding: GraphSettings) -> tuple[Tensor, Tensor, tuple[dict[int, object], ...]]:
    rows = torch.export.Dim("rows", min=1, max=65_535)
    length = torch.export.Dim("source_length", min=1, max=decoding.max_source)
    source = torch.zeros(EXAMPLE_ROWS, EXAMPLE_SOURCE, dtype=torch.int64)
    lengths = torch.full((EXAMPLE_ROWS,), EXAMPLE_SOURCE, dtype=torch.int32)
    return source, lengths, ({0: rows, 1: length}, {0: rows})


@dataclass(frozen=True)
class _Examples:
    """Example arguments of a graph, with their dynamic dimensions."""

    values: tuple[Any, ...]
    shapes: tuple[Any, ...]


class _Step:
    """Base of step graphs' example arguments."""

    kinds = (torch.int64, torch.int32, torch.int32, torch.int64)  # of the vectors
    floats = torch.float32
    opset = OPSET

    def __init__(self, model: Transformer, decoding: GraphSettings) -> None:
        config = model.config
        self.width = config.model_dim
        self.names = cache_names(config.decoder_layers)
        heads, size = config.decoder_block.heads, head_dim(model)
        row = {0: torch.export.Dim("rows", min=1, max=65_535)}
        # Every example is a tensor of its own: the tracer takes one that stands twice for one input.
        self.vectors = _Examples(([torch.zeros(EXAMPLE_ROWS, dtype=kind) for kind in self.kinds],), ([row] * 4,))
        shapes = (heads, capacity(decoding.max_target), size), self.memory(heads, capacity(decoding.max_source), size)
        caches = tuple([torch.zeros(EXAMPLE_ROWS, *shape, dtype=self.floats) for _ in self.names] for shape in shapes)
        self.caches = _Examples(caches, ([row] * len(self.names),) * 2)

    @staticmethod
    def memory(heads: int, positions: int, size: int) -> tuple[int, int, int]:
        """Shape of an encoded source."""
        return heads, positions, size

    @staticmethod
    def edits() -> _Examples:
        """Example edits and number of candidates."""
        width = {0: torch.export.Dim("rows", min=1, max=65_535), 1: torch.export.Dim("edits", min=1, max=65_535)}
        size = (EXAMPLE_ROWS, EXAMPLE_EDITS)
        edits = [torch.zeros(size, dtype=torch.int64), torch.ones(size), torch.zeros(size)]
        return _Examples((edits, torch.tensor([EXAMPLE_TOP])), ([width] * 3, None))

    def columns(self) -> _Examples:
        """Example part of the output projection."""
        count = BLOCK * torch.export.Dim("blocks", min=1, max=65_535)
        size = BLOCK * EXAMPLE_BLOCKS
        weights = torch.zeros(self.width, size, dtype=torch.int8)
        columns = [weights, torch.ones(size), torch.zeros(size), torch.zeros(size, dtype=torch.int64)]
        return _Examples((columns,), ([{1: count}, *[{0: count}] * 3],))

    def trace(self, graph: StepModule, *between: _Examples) -> Graph:
        """Trace a step graph; its vectors come first, its caches last."""
        parts = (self.vectors, *between, self.caches)
        values = tuple(value for part in parts for value in part.values)
        shapes = tuple(shape for part in parts for shape in part.shapes)
        inputs = [*graph.inputs, *(f"{kind}_{name}" for kind in ("cache", "memory") for name in self.names)]
        outputs = [*graph.outputs, *(f"present_{name}" for name in self.names)]
        return _name_ranks(_drop_unread(_trace(graph, values, shapes, inputs, outputs, self.opset)))


class _HalfStep(_Step):
    """Base of CUDA step graphs' example arguments."""

    kinds = (torch.int64, torch.int32, torch.int64, torch.int64)
    floats = torch.float16
    opset = HALF_OPSET

    @staticmethod
    def memory(heads: int, positions: int, size: int) -> tuple[int, int, int]:
        return 1, positions, heads * size


def trace_text(graph: TextGraph) -> Graph:
    """Trace a text graph, dynamic in rows, length and number of masks."""
    return _trace_text(graph, OPSET)


def trace_half_text(graph: TextGraph) -> Graph:
    """Trace a text graph for CUDA; the head stays in float32."""
    return _trace_text(halve(graph, lambda name: not name.startswith("encoder.")), HALF_OPSET)


def _trace_text(graph: TextGraph, opset: int) -> Graph:
    rows = torch.export.Dim("rows", min=1, max=65_535)
    length = torch.export.Dim("length", min=2, max=graph.max_positions)
    size = min(EXAMPLE_SOURCE, graph.max_positions)
    examples = {
        "ids": (torch.ones(EXAMPLE_ROWS, size, dtype=torch.int32), {0: rows, 1: length}),
        "segments": (torch.zeros(EXAMPLE_ROWS, size, dtype=torch.int32), {0: rows, 1: length}),
        "lengths": (torch.full((EXAMPLE_ROWS,), size, dtype=torch.int32), {0: rows}),
        "places": (torch.arange(EXAMPLE_MASKS), {0: torch.export.Dim("masks", min=0, max=1 << 30)}),
        "k": (torch.tensor([EXAMPLE_TOP]), None),
    }
    arguments, shapes = zip(*(examples[name] for name in graph.inputs), strict=True)
    return _name_ranks(_trace(graph, arguments, shapes, list(graph.inputs), list(graph.outputs), opset))


def trace_image(graph: ImageGraph) -> Graph:
    """Trace an image graph, dynamic in rows."""
    return _trace_image(graph, OPSET)


def trace_half_image(graph: ImageGraph) -> Graph:
    """Trace an image graph for CUDA; the classifier stays in float32."""
    return _trace_image(halve(graph, lambda name: name.startswith("classifier.")), HALF_OPSET)


def _trace_image(graph: ImageGraph, opset: int) -> Graph:
    rows = torch.export.Dim("rows", min=1, max=65_535)
    pixels = torch.zeros(EXAMPLE_ROWS, *graph.image, 3, dtype=torch.uint8)
    arguments = (pixels, torch.tensor([EXAMPLE_TOP]))
    return _name_ranks(_trace(graph, arguments, ({0: rows}, None), list(graph.inputs), list(graph.outputs), opset))


def _name_ranks(graph: Graph) -> Graph:
    """Name the dimension of results `k`, after the input that sets it."""
    for output in graph.model.graph.output:
        if output.name in RANKED:
            output.type.tensor_type.shape.dim[1].dim_param = "k"
    return graph


def _drop_unread(graph: Graph) -> Graph:
    """Remove the names of unread optional outputs, which the runtime would otherwise compute in every step."""
    body = graph.model.graph
    read = {name for node in body.node for name in node.input} | {value.name for value in body.output}
    for node in body.node:
        if node.domain == DOMAIN:
            node.output[:] = [name if name in read else "" for name in node.output]
    return graph


def cache_names(layers: int) -> list[str]:
    """`key_0, value_0, key_1, ...`: the order of all lists of keys and values."""
    return [f"{kind}_{layer}" for layer in range(layers) for kind in ("key", "value")]


def _trace(
    module: nn.Module,
    arguments: tuple[Tensor | list[Tensor], ...],
    shapes: Sequence[object],
    inputs: list[str],
    outputs: list[str],
    opset: int = OPSET,
) -> Graph:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            arguments,
            dynamo=True,
            dynamic_shapes=tuple(shapes),
            opset_version=opset,
            input_names=inputs,
            output_names=outputs,
            optimize=True,
            verbose=False,
        )
    assert program is not None
    graph = Graph.of_ir(program.model)
    return fuse_skip_norms(graph) if opset == HALF_OPSET else graph
