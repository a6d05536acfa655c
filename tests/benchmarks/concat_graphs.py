"""The graphs that a plain export gives: the encoder, and a decoder that joins its past and the new position."""

import copy
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional

from triptych_serving.runtime.cpu_info import int8_saturates
from triptych_training.models.transformer import DecoderLayer, Transformer

OPSET = 21
ROWS, SOURCE, PAST = 3, 7, 5  # examples; any sizes but 0 and 1, which the tracer would take for constants


class EncoderGraph(nn.Module):
    """Source ids and their number -> cross-attention keys and values of every layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, source: Tensor, mask: Tensor) -> list[Tensor]:
        """`[B, S]` ids and truth values -> `[B, H, S, D]` keys and values, layer by layer."""
        memory = self.encoder(source, mask[:, None, None, :])
        return [part for pair in self.decoder.project_memory(memory) for part in pair]


class DecoderGraph(nn.Module):
    """One position more -> logits, and a past that is longer by one."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.decoder = model.decoder
        self.projection = copy.deepcopy(model.projection)  # shared with the embedding, it would not be quantized

    def forward(
        self, tokens: Tensor, position: Tensor, mask: Tensor, past: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """`[B, 1]` tokens at `position` `[1]` -> logits `[B, V]` and `[B, H, t + 1, D]` keys and values."""
        embedding = self.decoder.embedding
        x = embedding.at(tokens, functional.embedding(position, embedding.positions.weight))
        present: list[Tensor] = []
        for index, layer in enumerate(self.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            keys, values = 2 * index, 2 * index + 1
            x, grown = layer.step(x, (memory[keys], memory[values]), mask[:, None, None, :], (past[keys], past[values]))
            present += grown
        logits: Tensor = self.projection(self.decoder.norm(x))[:, 0]
        return logits, present


def export_encoder(model: Transformer, path: Path, precision: str) -> None:
    """Write the encoder graph."""
    rows = torch.export.Dim("rows", min=1, max=65_535)
    length = torch.export.Dim("length", min=1, max=model.config.max_positions)
    arguments = (torch.ones(ROWS, SOURCE, dtype=torch.int64), torch.ones(ROWS, SOURCE, dtype=torch.bool))
    shape = {0: rows, 1: length}
    _write(EncoderGraph(model), arguments, (shape, shape), ["source", "mask"], names(model, "memory"), path, precision)


def export_decoder(model: Transformer, path: Path, precision: str) -> None:
    """Write the decoder graph; its past may be empty."""
    config = model.config
    rows = torch.export.Dim("rows", min=1, max=65_535)
    length = torch.export.Dim("length", min=1, max=config.max_positions)
    past = torch.export.Dim("past", min=0, max=config.max_positions)
    heads, size, caches = config.heads, config.model_dim // config.heads, names(model, "past")
    arguments = (
        torch.ones(ROWS, 1, dtype=torch.int64),
        torch.tensor([PAST]),
        torch.ones(ROWS, SOURCE, dtype=torch.bool),
        [torch.zeros(ROWS, heads, PAST, size) for _ in caches],
        [torch.zeros(ROWS, heads, SOURCE, size) for _ in caches],
    )
    shapes = (
        {0: rows},
        None,
        {0: rows, 1: length},
        [{0: rows, 2: past} for _ in caches],
        [{0: rows, 2: length} for _ in caches],
    )
    inputs = ["tokens", "position", "mask", *caches, *names(model, "memory")]
    _write(DecoderGraph(model), arguments, shapes, inputs, ["logits", *names(model, "present")], path, precision)


def names(model: Transformer, kind: str) -> list[str]:
    """Of the keys and values of every layer."""
    return [f"{kind}_{part}_{layer}" for layer in range(model.config.decoder_layers) for part in ("key", "value")]


def _write(
    module: nn.Module, arguments: Any, shapes: Any, inputs: list[str], outputs: list[str], path: Path, precision: str
) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            arguments,
            str(path),
            dynamo=True,
            dynamic_shapes=shapes,
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
            external_data=False,
            verbose=False,
        )
    if precision == "int8":
        kind = QuantType.QUInt8 if int8_saturates() else QuantType.QInt8  # the exporters' choices for AVX2 and for VNNI
        logging.disable()  # it says that the graph could be preprocessed, which the exporters do not
        quantize_dynamic(path, path, weight_type=kind)
        logging.disable(logging.NOTSET)
