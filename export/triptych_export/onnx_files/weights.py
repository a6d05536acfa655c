"""Weights of a generative model out of the ONNX files that Optimum writes, under the names that they had in PyTorch.

The exporter of PyTorch keeps the names of most parameters; matrices of projections are transposed, and equal vectors are stored
once and copied by an Identity node. A matrix is found by the name of its node: "/model/decoder/layers.0/fc1/MatMul".
Source: https://huggingface.co/docs/optimum-onnx/onnx/usage_guides/export_a_model
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from onnx import GraphProto, TensorProto, numpy_helper
from torch import Tensor

from triptych_export.onnx_files.checks import read_model

ENCODER, WHOLE = "encoder_model.onnx", "model.onnx"
DECODERS = ("decoder_model.onnx", "decoder_model_merged.onnx")  # with the layers that a step with a past does not need
FOLDERS = (".", "onnx")
MERGED = re.compile(r"_merged_\d+$")
UNNAMED = "onnx::"
# Prefixes of parameters in the decoder's file, and those that the encoder's file leaves out.
PREFIXES = {"model.decoder.": "model.encoder.", "decoder.": "encoder."}


def weight_graphs(folder: Path) -> list[Path]:
    """List the ONNX files from which a generative model's weights can be read; none if there are no such files."""
    for place in (folder / name for name in FOLDERS):
        decoder = next((place / name for name in DECODERS if (place / name).is_file()), None)
        if (place / ENCODER).is_file() and decoder:
            return [decoder, place / ENCODER]
        if decoder or (place / WHOLE).is_file():
            return [decoder or place / WHOLE]
    return []


def open_graphs(files: Sequence[Path]) -> dict[Path, "GraphShard"]:
    """Read the weights of a decoder's file and, if there is one, those of the encoder's.

    Raises:
        SourceError: a file is damaged.
    """
    decoder, *others = files
    first = GraphShard(decoder)
    prefix = next((ours for theirs, ours in PREFIXES.items() if any(name.startswith(theirs) for name in first.shapes)), "")
    return {decoder: first, **{path: GraphShard(path, prefix) for path in others}}


class GraphShard:
    """Weights of one ONNX file.

    Args:
        path: the file.
        prefix: what the file leaves out of its parameters' names.

    Raises:
        SourceError: the file is damaged.
    """

    def __init__(self, path: Path, prefix: str = "") -> None:
        self._path, self._model = path, read_model(path)
        stored = {tensor.name: tensor for graph in _graphs(self._model.graph) for tensor in graph.initializer}
        self._tensors: dict[str, tuple[TensorProto, bool]] = {  # by parameter; whether it is transposed
            MERGED.sub("", name): (tensor, False) for name, tensor in stored.items() if _is_parameter(name)
        }
        for graph in _graphs(self._model.graph):
            for node in graph.node:
                if node.op_type == "Identity" and node.input[0] in stored and _is_parameter(node.output[0]):
                    self._tensors.setdefault(MERGED.sub("", node.output[0]), (stored[node.input[0]], False))
                if node.op_type == "MatMul" and node.input[1] in stored and node.input[1].startswith(UNNAMED):
                    module = ".".join(node.name.strip("/").split("/")[:-1])
                    self._tensors.setdefault(f"{module}.weight", (stored[node.input[1]], True))
        self._tensors = {f"{prefix}{name}": found for name, found in self._tensors.items()}
        self.shapes = {
            name: torch.Size(reversed(tensor.dims) if turned else tensor.dims)
            for name, (tensor, turned) in self._tensors.items()
        }

    def read(self, name: str) -> Tensor:
        """Read one tensor."""
        tensor, turned = self._tensors[name]
        values = torch.from_numpy(numpy_helper.to_array(tensor, str(self._path.parent)).copy())
        return values.T if turned else values


def _is_parameter(name: str) -> bool:
    return not name.startswith(UNNAMED) and "/" not in name and MERGED.sub("", name).endswith((".weight", ".bias", "_bias"))


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and, of a merged decoder, those of its two branches."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "If" else ():
            yield from _graphs(attribute.g)
