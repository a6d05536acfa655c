"""A decoder-only ONNX file of an unknown architecture, as a network beside our own."""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, helper
from torch import Tensor, nn

from triptych_export.errors import SourceError
from triptych_export.onnx_files.adapters import IDS, MASK, POSITIONS
from triptych_export.onnx_files.checks import graph_inputs, read_model
from triptych_export.onnx_files.layout import OnnxFile, precision_of
from triptych_export.onnx_files.trial import Arrays, try_run
from triptych_serving.runtime.session import Session
from triptych_training.models.gpt import GptConfig

DOMAIN, OPERATOR = "triptych", "Decoder"
PAST, PRESENT, BRANCH, LOGITS = "past_key_values", "present", "use_cache_branch", "logits"
PAST_NAME = re.compile(rf"{PAST}\.(\d+)\.(key|value)")
INT64_MAX = 2**63 - 1


class Logits(nn.Module):
    """Stand-in for the output projection of a decoder that computes logits itself; `bias` is added to them."""

    def __init__(self, count: int, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.bias = count, bias

    def forward(self, logits: Tensor) -> Tensor:
        """Return logits `[B, V]`."""
        return logits if self.bias is None else logits + self.bias


class OnnxGpt(nn.Module):
    """The file as a network: ONNX Runtime computes its logits, and it is traced as one operator.

    `graphs.onnx_decoder` replaces that by the nodes.

    Args:
        path: the file, with inputs for keys and values; in a merged one, the branch that reads them is used.
        positions: longest text.

    Raises:
        SourceError: the file is damaged, does not run, or has inputs or outputs of no known meaning.
    """

    def __init__(self, path: Path, positions: int) -> None:
        super().__init__()
        self.file = OnnxFile(path, read_model(path))
        self.precision = precision_of(self.file.model)
        self.graph = graph = with_past(self.file.model)
        layers, heads, size = _cache_shape(path, graph)
        outputs = {one.name for one in graph.graph.output}
        if missing := {LOGITS, *cache_values(layers, PRESENT)} - outputs:
            raise SourceError(f"{path}: no output {min(missing)}; there are: {', '.join(sorted(outputs))}")
        [first] = try_run(path, [decoder_inputs(self.file.model, [0])], self.file.bytes)  # before it runs in this process
        count = first[LOGITS].shape[-1]
        self.config = GptConfig(count, heads * size, heads, head_dim=size, layers=layers, max_positions=positions)
        self.projection = Logits(count)

    @cached_property
    def _session(self) -> Session:
        return Session(self.file.path)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute logits `[1, S, V]` after each token of one row."""
        [logits] = self._session.run(decoder_inputs(self.file.model, ids[0].tolist()), (LOGITS,))
        return torch.from_numpy(logits).float()

    def trace(self, tokens: Tensor, starts: Tensor, cache: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Add the operator: logits `[B, S, V]` and the caches with the tokens' keys and values."""
        shapes = [(*tokens.shape, self.config.output_count), *(each.shape for each in cache)]
        logits, *present = torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{OPERATOR}", (tokens, starts, *cache), dtypes=[torch.float32] * len(shapes), shapes=shapes, version=1
        )
        return logits, list(present)


def decoder_inputs(model: ModelProto, ids: Sequence[int], more: Arrays | None = None) -> Arrays:
    """Make the inputs of Optimum's decoder for one text, with an empty past."""
    tokens = np.array([ids])
    numbered = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "position_ids": np.arange(tokens.size)[None]}
    values = {**numbered, "use_cache_branch": np.array([False]), **(more or {})}
    return {given.name: values.get(given.name, _past(given)) for given in graph_inputs(model)}


def _past(given: ValueInfoProto) -> NDArray[Any]:
    """Make an empty past, of one row."""
    kind = given.type.tensor_type
    first, *sizes = (size.dim_value for size in kind.shape.dim)
    return np.zeros([first or 1, *sizes], helper.tensor_dtype_to_np_dtype(kind.elem_type))


def cache_values(layers: int, prefix: str) -> list[str]:
    """Name the keys and values of all layers, in the order of our caches."""
    return [f"{prefix}.{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]


def _cache_shape(path: Path, model: ModelProto) -> tuple[int, int, int]:
    """Return layers, heads and their size.

    Raises:
        SourceError: an input has no known meaning, or there are no keys and values `[rows, heads, positions, size]`.
    """
    sizes, known = {}, {*IDS[:1], *MASK[:1], *POSITIONS}
    for one in model.graph.input:
        if PAST_NAME.fullmatch(one.name):
            sizes[one.name] = [size.dim_value for size in one.type.tensor_type.shape.dim]
        elif one.name not in known:
            raise SourceError(
                f"{path}: input {one.name!r:.60} has no known meaning; known: {', '.join(known)}, {PAST}.N.key, .value"
            )
    shapes = {(size[1], size[3]) for size in sizes.values() if len(size) == 4}
    layers = len(sizes) // 2
    if set(sizes) != set(cache_values(layers, PAST)) or len(shapes) != 1 or not all(min(shapes)) or not layers:
        wanted = f"{PAST}.N.key and .value [rows, heads, positions, size], heads and size fixed and alike in all layers"
        raise SourceError(
            f"{path}: needs inputs {wanted}; there are: {', '.join(f'{n} {s}' for n, s in sizes.items()) or 'none'}"
        )
    return layers, *shapes.pop()


def with_past(model: ModelProto) -> ModelProto:
    """Copy a model's structure; of a merged one only the branch for texts with a past."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    inputs = [one for one in graph_inputs(model) if one.name != BRANCH]
    nodes = []
    for node in model.graph.node:
        if node.op_type != "If" or node.input[0] != BRANCH:
            nodes.append(node)
            continue
        [branch] = [attribute.g for attribute in node.attribute if attribute.name == "then_branch"]
        nodes += branch.node
        graph.initializer.extend(branch.initializer)
        names = zip(branch.output, node.output, strict=True)
        nodes += [helper.make_node("Identity", [inner.name], [outer]) for inner, outer in names if inner.name != outer]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    return copy
