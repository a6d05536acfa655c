"""Tracing of PyTorch modules to ONNX graphs, in float32 or, for CUDA, in float16."""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from triptych_export.graphs.cuda_translation import HalfEncoderGraph, HalfSearchGraph, HalfStepGraph
from triptych_export.graphs.float16 import to_float16
from triptych_export.graphs.generation import GenerationGraph, GenerationScore, GenerationSearch, GenerationStep
from triptych_export.graphs.image import AutoencoderGraph, image_graph
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.onnx_decoder import encoder_graph, insert_decoder
from triptych_export.graphs.operators import DOMAIN
from triptych_export.graphs.recurrent import RecurrentEncoderGraph
from triptych_export.graphs.skip_norms import fuse_skip_norms
from triptych_export.graphs.text import text_graph
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
from triptych_export.graphs.weight_folding import cache_head_dim, cache_layers, decoder_shape
from triptych_export.onnx_files.decoder import OnnxGpt, OnnxSeq2Seq, Seq2Seq
from triptych_serving.bundle.manifest.image import LATENTS, LOG_SCALES, LOG_VARIANCES, PIXELS
from triptych_serving.decoding.kv_cache import OFFSETS, cache_names
from triptych_training.checkpoints.encoder import ImageModel
from triptych_training.models.bert import BertModel
from triptych_training.models.gpt import Gpt
from triptych_training.models.rnn import Rnn
from triptych_training.models.transformer import Transformer
from triptych_training.models.vae import Vae

OPSET = 21
HALF_OPSET = 24  # of CUDA graphs: the first with `nonpad_kv_seqlen`
STEP_GRAPHS: dict[str, type[StepGraph | SearchGraph]] = {  # the short ones are of Transformers only
    "step": StepGraph,
    "search": SearchGraph,
    "short_step": ShortStepGraph,
    "short_search": ShortSearchGraph,
}
GENERATION_GRAPHS: dict[str, type[GenerationStep | GenerationSearch | GenerationScore]] = {
    "step": GenerationStep,
    "search": GenerationSearch,
    "score": GenerationScore,
}
HALF_STEP_GRAPHS: dict[str, type[StepGraph | SearchGraph]] = {"step": HalfStepGraph, "search": HalfSearchGraph}
CachedGraph = StepGraph | SearchGraph | GenerationGraph
Example = tuple[Tensor | list[Tensor], object]  # argument of a graph, and its dynamic dimensions
EXAMPLE_ROWS, EXAMPLE_SOURCE = 3, 7  # any sizes but 0 and 1, which the tracer would treat as constants
EXAMPLE_CAPACITY = 11
EXAMPLE_MASKS, EXAMPLE_TOP, EXAMPLE_EDITS, EXAMPLE_TARGET, EXAMPLE_BLOCKS = 5, 2, 4, 6, 3
ROWS = torch.export.Dim("rows", min=1, max=65_535)
RANKED = ("scores", "tokens", "labels", "top_log_probabilities", "top_tokens")  # outputs `[N, k]`


def trace_translation(kind: str, model: Seq2Seq, settings: GraphSettings, half: bool = False) -> Graph:
    """Trace one graph of a translation bundle.

    Args:
        kind: "encoder", "score" (Transformers only) or one of STEP_GRAPHS. The encoder and score graphs are dynamic in rows
            and lengths, step graphs in rows and, where they have them, in edits, candidates and shortlist columns.
        model: prepared by `fold_scales`, except for the score graph, and for int8 caches by `fold_cache_scales`.
        settings: limits and decoding rules.
        half: trace the float16 graph for CUDA; there are none with a shortlist.
    """
    if kind in STEP_GRAPHS:
        return _trace_step(kind, model, settings, half)
    if isinstance(model, OnnxSeq2Seq):
        return encoder_graph(model, OPSET)
    length = torch.export.Dim("source_length", min=1, max=settings.max_source)
    source = torch.zeros(EXAMPLE_ROWS, EXAMPLE_SOURCE, dtype=torch.int64), {0: ROWS, 1: length}
    lengths, names = torch.full((EXAMPLE_ROWS,), EXAMPLE_SOURCE, dtype=torch.int32), ["source", "lengths"]
    if isinstance(model, Rnn):
        return _trace(RecurrentEncoderGraph(model), (source, (lengths, {0: ROWS})), names, ["memory"], half)
    if kind == "encoder":
        encoder = HalfEncoderGraph(model) if half else EncoderGraph(model, settings.int8_caches)
        if settings.joins_sources and isinstance(encoder, EncoderGraph) and encoder.takes_sequences:
            sequences = {0: torch.export.Dim("sequences", min=1, max=65_535)}
            examples = source, (lengths, sequences), (torch.zeros(EXAMPLE_SOURCE, dtype=torch.int64), {0: length})
            traced = _trace(encoder, examples, [*names, OFFSETS], ["memory"], half)
            return _with_default(traced, OFFSETS, np.zeros(1, np.int64))
        return _trace(encoder, (source, (lengths, {0: ROWS})), names, ["memory"], half)
    target_length = torch.export.Dim("target_length", min=2, max=settings.max_target + 1)
    targets = torch.zeros(EXAMPLE_ROWS, EXAMPLE_TARGET, dtype=torch.int64), {0: ROWS, 1: target_length}
    examples = source, (lengths, {0: ROWS}), targets
    return _trace(ScoreGraph(model), examples, [*names, "targets"], ["log_probabilities"], half)


def _trace_step(kind: str, model: Seq2Seq, settings: GraphSettings, half: bool) -> Graph:
    """Trace a step graph: its vectors come first, then edits and columns, its caches last."""
    graph = (HALF_STEP_GRAPHS if half else STEP_GRAPHS)[kind](model, settings)
    examples = [_vectors(half)]
    if kind.endswith("search"):
        examples += _edits()
    if kind.startswith("short"):
        assert isinstance(model, Transformer)
        examples.append(_columns(model.config.model_dim))
    examples += _caches(model, settings, half)
    names = cache_names(decoder_shape(model).layers)
    outputs = [f"present_{name}" for name in names]
    if settings.int8_caches:
        outputs += [f"present_memory_{name}" for name in names]
    inputs = [f"{kind}_{name}" for kind in ("cache", "memory") for name in names]
    traced = _trace_cached(graph, examples, inputs, outputs, half)
    return insert_decoder(traced, model) if isinstance(model, OnnxSeq2Seq) else traced


def _trace_cached(graph: CachedGraph, examples: Sequence[Example], inputs: list[str], outputs: list[str], half: bool) -> Graph:
    """Trace a graph whose last `inputs` and `outputs` are caches."""
    traced = _trace(graph, examples, [*graph.inputs, *inputs], [*graph.outputs, *outputs], half)
    body = traced.model.graph
    read = {name for node in body.node for name in node.input} | {value.name for value in body.output}
    for node in body.node:
        if node.domain == DOMAIN:  # the runtime would compute unread optional outputs that have names
            node.output[:] = [name if name in read else "" for name in node.output]
    if DOMAIN not in {opset.domain for opset in traced.model.opset_import}:
        # With a library of kernels, the runtime may fuse nodes to its own operators only if the graph names their domain.
        traced.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return traced


def _vectors(half: bool) -> Example:
    """Example tokens, positions, source lengths (as indices of the last position in float32) and forced tokens."""
    types = (torch.int64, torch.int32, torch.int64 if half else torch.int32, torch.int64)
    # Every example is a tensor of its own: the tracer would merge inputs that share one.
    return [torch.zeros(EXAMPLE_ROWS, dtype=dtype) for dtype in types], [{0: ROWS}] * 4


def _caches(model: Seq2Seq, settings: GraphSettings, half: bool) -> list[Example]:
    """Example caches of targets and sources."""
    shape = decoder_shape(model)
    heads, size, names = shape.heads, shape.head_dim, cache_names(shape.layers)
    source = capacity(settings.max_source)
    shapes = (
        (heads, shape.state_vectors or capacity(settings.max_target), size),
        (1, source, heads * size) if half else (heads, source, size),
    )
    dtype = torch.int8 if settings.int8_caches else torch.float16 if half else torch.float32
    return [([torch.zeros(EXAMPLE_ROWS, *each, dtype=dtype) for _ in names], [{0: ROWS}] * len(names)) for each in shapes]


def _edits() -> list[Example]:
    """Example edits and number of candidates."""
    width = {0: ROWS, 1: torch.export.Dim("edits", min=1, max=65_535)}
    size = (EXAMPLE_ROWS, EXAMPLE_EDITS)
    edits = [torch.zeros(size, dtype=torch.int64), torch.ones(size), torch.zeros(size)]
    return [(edits, [width] * 3), (torch.tensor([EXAMPLE_TOP]), None)]


def _columns(width: int) -> Example:
    """Example part of the output projection."""
    count = BLOCK * torch.export.Dim("blocks", min=1, max=65_535)
    size = BLOCK * EXAMPLE_BLOCKS
    weights = torch.zeros(width, size, dtype=torch.int8)
    columns = [weights, torch.ones(size), torch.zeros(size), torch.zeros(size, dtype=torch.int64)]
    return columns, [{1: count}, *[{0: count}] * 3]


def trace_generation(kind: str, model: Gpt | OnnxGpt, settings: GraphSettings, half: bool) -> Graph:
    """Trace one of GENERATION_GRAPHS, dynamic in rows, tokens, capacity of the caches, edits and candidates.

    `model` is prepared by `fold_gpt`, or a file that is kept; with `half`, weights and caches are float16.
    """
    graph = GENERATION_GRAPHS[kind](model, settings)
    config = model.config
    chunk = {0: ROWS, 1: torch.export.Dim("tokens", min=1, max=config.max_positions)}
    cache = {0: ROWS, 2: torch.export.Dim("capacity", min=2, max=config.max_positions)}
    heads, size, names = config.kv_heads or config.heads, cache_head_dim(model), cache_names(sum(cache_layers(model)))

    def ids() -> Tensor:
        return torch.zeros(EXAMPLE_ROWS, EXAMPLE_SOURCE, dtype=torch.int64)

    places = [ids(), torch.zeros(EXAMPLE_ROWS, dtype=torch.int32), torch.full((1,), EXAMPLE_CAPACITY, dtype=torch.int32)]
    dtype = torch.float16 if half else torch.float32
    caches = [torch.zeros(EXAMPLE_ROWS, heads, EXAMPLE_CAPACITY, size, dtype=dtype) for _ in names]
    forced = torch.zeros(EXAMPLE_ROWS, dtype=torch.int64), {0: ROWS}
    between: dict[str, list[Example]] = {
        "step": [forced],
        "search": [forced, *_edits()],
        "score": [(ids(), chunk), (torch.tensor([EXAMPLE_TOP]), None)],
    }
    examples = [(places, [chunk, {0: ROWS}, None]), *between[kind], (caches, [cache] * len(names))]
    inputs, outputs = ([f"{kind}_{name}" for name in names] for kind in ("cache", "present"))
    traced = _trace_cached(graph, examples, inputs, outputs, half)
    return insert_decoder(traced, model) if isinstance(model, OnnxGpt) else traced


def trace_text(model: BertModel, absent: Sequence[int], half: bool) -> Graph:
    """Trace a text encoder, dynamic in rows, length and number of masks; in float16 the head stays float32.

    `absent` lists ids of the embedding that are not tokens, which never fill a mask.
    """
    graph = text_graph(model, absent, half)
    length = torch.export.Dim("length", min=2, max=graph.max_positions)
    size = min(EXAMPLE_SOURCE, graph.max_positions)
    examples: dict[str, Example] = {
        "ids": (torch.ones(EXAMPLE_ROWS, size, dtype=torch.int32), {0: ROWS, 1: length}),
        "segments": (torch.zeros(EXAMPLE_ROWS, size, dtype=torch.int32), {0: ROWS, 1: length}),
        "lengths": (torch.full((EXAMPLE_ROWS,), size, dtype=torch.int32), {0: ROWS}),
        "places": (torch.arange(EXAMPLE_MASKS), {0: torch.export.Dim("masks", min=0, max=1 << 30)}),
        "k": (torch.tensor([EXAMPLE_TOP]), None),
    }
    used = [examples[name] for name in graph.inputs]
    return _trace(graph, used, graph.inputs, graph.outputs, half, lambda name: not name.startswith("encoder."))


def trace_image(model: ImageModel, mean: Sequence[float], std: Sequence[float], half: bool) -> Graph:
    """Trace an image classifier, dynamic in rows; in float16 the classifier stays float32.

    `mean` and `std` are those of each channel, 0 to 1.
    """
    graph = image_graph(model, mean, std, half)
    pixels = torch.zeros(EXAMPLE_ROWS, *graph.image, 3, dtype=torch.uint8)
    examples = (pixels, {0: ROWS}), (torch.tensor([EXAMPLE_TOP]), None)
    return _trace(graph, examples, graph.inputs, graph.outputs, half, lambda name: name.startswith("classifier."))


def trace_autoencoder(model: Vae) -> dict[str, Graph]:
    """Trace `encode` and `decode` of a variational autoencoder, dynamic in rows."""
    size = model.config.image_size
    arguments = {
        "encode": (torch.zeros(EXAMPLE_ROWS, size, size, 3, dtype=torch.uint8), PIXELS, [LATENTS, LOG_VARIANCES]),
        "decode": (torch.zeros(EXAMPLE_ROWS, model.config.latent_dim), LATENTS, [PIXELS, LOG_SCALES]),
    }
    return {
        kind: _trace(AutoencoderGraph(model, kind), [(example, {0: ROWS})], [name], outputs, half=False)
        for kind, (example, name, outputs) in arguments.items()
    }


def _with_default(graph: Graph, name: str, value: NDArray[Any]) -> Graph:
    """Make an input optional; the default may have other dimensions, to which operators broadcast."""
    body = graph.model.graph
    [given] = [given for given in body.input if given.name == name]
    for dimension in given.type.tensor_type.shape.dim:
        dimension.dim_param = name
    body.initializer.append(numpy_helper.from_array(value, name))
    return graph


# The tracer would read the sources of its 500 functions again for every graph, which takes a quarter of the time.
_registry = staticmethod(cache(ONNXRegistry.from_torchlib))


def _trace(
    module: nn.Module,
    examples: Sequence[Example],
    inputs: Sequence[str],
    outputs: Sequence[str],
    half: bool,
    keep: Callable[[str], bool] | None = None,
) -> Graph:
    """Trace a module; with `half`, in float16 but for tensors whose name is one to `keep`."""
    module = to_float16(module, keep) if half else module
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad(), patch.object(ONNXRegistry, "from_torchlib", _registry):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(value for value, _ in examples),
            dynamo=True,
            dynamic_shapes=tuple(shape for _, shape in examples),
            opset_version=HALF_OPSET if half else OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            optimize=True,
            verbose=False,
        )
    assert program is not None
    graph = Graph.of_ir(program.model)
    for output in graph.model.graph.output:
        if output.name in RANKED:
            output.type.tensor_type.shape.dim[1].dim_param = "k"  # after the input that sets this dimension
    return fuse_skip_norms(graph) if half else graph
