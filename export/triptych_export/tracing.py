"""PyTorch modules to ONNX graphs."""

import logging
import warnings
from collections.abc import Sequence

import onnx
import torch
from torch import Tensor, nn

from triptych_export.graphs import EncoderGraph, StepGraph
from triptych_export.image_graphs import ImageGraph
from triptych_export.text_graphs import TextGraph
from triptych_training.transformer import Transformer

OPSET = 21
EXAMPLE_ROWS, EXAMPLE_SOURCE = 3, 7  # any sizes but 0 and 1, which the tracer would take for constants
EXAMPLE_MASKS, EXAMPLE_TOP = 5, 2
RANKED = ("scores", "tokens", "labels")  # outputs `[N, k]`


def trace_encoder(model: Transformer) -> onnx.ModelProto:
    """The encoder graph of a scale-folded model, dynamic in rows and source length."""
    rows = torch.export.Dim("rows", min=1, max=65_535)
    length = torch.export.Dim("source_length", min=1, max=model.config.max_positions)
    source = torch.zeros(EXAMPLE_ROWS, EXAMPLE_SOURCE, dtype=torch.int64)
    lengths = torch.full((EXAMPLE_ROWS,), EXAMPLE_SOURCE, dtype=torch.int32)
    shapes = ({0: rows, 1: length}, {0: rows})
    return _trace(EncoderGraph(model), (source, lengths), shapes, ["source", "lengths"], ["memory"])


def trace_step(model: Transformer) -> onnx.ModelProto:
    """The step graph of a scale-folded model, dynamic in rows and in both caches' capacities."""
    config = model.config
    rows = torch.export.Dim("rows", min=1, max=65_535)
    cache_length = torch.export.Dim("cache_length", min=2, max=65_535)
    memory_length = torch.export.Dim("memory_length", min=2, max=65_535)
    names = cache_names(config.decoder_layers)
    shape = (EXAMPLE_ROWS, config.heads, EXAMPLE_SOURCE, config.model_dim // config.heads)
    arguments = (
        torch.ones(EXAMPLE_ROWS, dtype=torch.int64),
        torch.zeros(EXAMPLE_ROWS, dtype=torch.int32),
        torch.ones(EXAMPLE_ROWS, dtype=torch.int32),
        torch.full((EXAMPLE_ROWS,), -1, dtype=torch.int64),
        [torch.zeros(shape) for _ in names],
        [torch.zeros(shape) for _ in names],
    )
    row = {0: rows}
    shapes = (row, row, row, row, [{0: rows, 2: cache_length}] * len(names), [{0: rows, 2: memory_length}] * len(names))
    inputs = ["tokens", "positions", "last", "forced", *(f"cache_{n}" for n in names), *(f"memory_{n}" for n in names)]
    outputs = ["next", *(f"present_{n}" for n in names)]
    return _trace(StepGraph(model), arguments, shapes, inputs, outputs)


def trace_text(graph: TextGraph) -> onnx.ModelProto:
    """A text graph, dynamic in rows, length and, where it fills masks, their number."""
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
    return _name_ranks(_trace(graph, arguments, shapes, list(graph.inputs), list(graph.outputs)))


def trace_image(graph: ImageGraph) -> onnx.ModelProto:
    """An image graph, dynamic in rows."""
    rows = torch.export.Dim("rows", min=1, max=65_535)
    pixels = torch.zeros(EXAMPLE_ROWS, graph.image_size, graph.image_size, 3, dtype=torch.uint8)
    arguments = (pixels, torch.tensor([EXAMPLE_TOP]))
    return _name_ranks(_trace(graph, arguments, ({0: rows}, None), list(graph.inputs), list(graph.outputs)))


def _name_ranks(model: onnx.ModelProto) -> onnx.ModelProto:
    """How many results a graph gives is an input, for which the tracer has no name: it is `k`."""
    for output in model.graph.output:
        if output.name in RANKED:
            output.type.tensor_type.shape.dim[1].dim_param = "k"
    return model


def cache_names(layers: int) -> list[str]:
    """`key_0, value_0, key_1, ...`: the order of all lists of keys and values."""
    return [f"{kind}_{layer}" for layer in range(layers) for kind in ("key", "value")]


def _trace(
    module: nn.Module,
    arguments: tuple[Tensor | list[Tensor], ...],
    shapes: Sequence[object],
    inputs: list[str],
    outputs: list[str],
) -> onnx.ModelProto:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            arguments,
            dynamo=True,
            dynamic_shapes=tuple(shapes),
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
            optimize=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto
