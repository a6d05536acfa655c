"""A plain ONNX export, as Optimum makes and runs it.

The decoder graph concatenates its cache with the new position and returns logits; the loop around it is greedy.
"""

import copy
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional

from candidates.candidate import Answer, Candidate, Decoding
from triptych_serving.runtime.cpu_info import int8_saturates
from triptych_training.checkpoints.translation import Checkpoint
from triptych_training.models.transformer import DecoderLayer, Transformer

Array = NDArray[Any]
OPSET = 21
ROWS, SOURCE, PAST = 3, 7, 5  # example sizes; the tracer would take 0 and 1 for constants


class EncoderGraph(nn.Module):
    """Encoder: source ids and mask -> cross-attention keys and values of every layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, source: Tensor, mask: Tensor) -> list[Tensor]:
        """`[B, S]` ids and mask -> `[B, H, S, D]` keys and values, layer by layer."""
        memory = self.encoder(source, mask[:, None, None, :])
        return [part for pair in self.decoder.project_memory(memory) for part in pair]


class DecoderGraph(nn.Module):
    """Decoder: one position -> logits, and a cache longer by one position."""

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
    """Write the decoder graph; the cache may be empty."""
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
    """Return the names of the keys and values of every layer."""
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
        kind = QuantType.QUInt8 if int8_saturates() else QuantType.QInt8  # as the exporters choose for AVX2 and for VNNI
        logging.disable()  # warns that the graph is not preprocessed; the exporters do not preprocess either
        quantize_dynamic(path, path, weight_type=kind)
        logging.disable(logging.NOTSET)


class ConcatPeer(Candidate):
    """Plain ONNX graphs, greedy; a call is one padded batch that ends with its longest translation.

    Args:
        checkpoint: Trained model.
        folder: Receives the graphs; must not exist.
        precision: fp32 or int8.
        cpus: Threads inside an operator.
    """

    name, family = "ONNX concat", "ONNX concat"
    searches_beams = False

    def __init__(self, checkpoint: Checkpoint, folder: Path, precision: str, cpus: int) -> None:
        self._config, self._tokenizer = checkpoint.model.config, checkpoint.tokenizer
        folder.mkdir(parents=True)
        export_encoder(checkpoint.model, folder / "encoder.onnx", precision)
        export_decoder(checkpoint.model, folder / "decoder.onnx", precision)
        self._encoder, self._decoder = (_open_session(folder / f"{kind}.onnx", cpus) for kind in ("encoder", "decoder"))
        self._memory, self._past = names(checkpoint.model, "memory"), names(checkpoint.model, "past")

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        sources = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        ids = np.full((len(sources), max(map(len, sources))), self._config.pad_id, np.int64)
        for index, source in enumerate(sources):
            ids[index, : len(source)] = source
        end = self._config.eos_id
        rows = [row[: row.index(end)] if end in row else row for row in self._decode(ids, decoding.limit)]
        return [Answer(text, len(row)) for text, row in zip(self._tokenizer.decode_batch(rows), rows, strict=True)]

    def _decode(self, source: Array, limit: int) -> list[list[int]]:
        """Decode `[B, S]` into at most `limit` ids per row; ids after a row's end are meaningless."""
        config, mask = self._config, source != self._config.pad_id
        memory = dict(zip(self._memory, self._encoder.run(None, {"source": source, "mask": mask}), strict=True))
        empty = np.zeros((len(source), config.heads, 0, config.model_dim // config.heads), np.float32)
        past = [empty] * len(self._past)
        tokens = np.full((len(source), 1), config.bos_id, np.int64)
        done, output = np.zeros(len(source), bool), []
        for position in range(limit):
            feeds = {"tokens": tokens, "position": np.array([position]), "mask": mask, **memory}
            logits, *past = self._decoder.run(None, {**feeds, **dict(zip(self._past, past, strict=True))})
            tokens = logits.argmax(-1)[:, None]
            output.append(tokens)
            done |= tokens[:, 0] == config.eos_id
            if done.all():
                break
        rows: list[list[int]] = np.concatenate(output, axis=1).tolist()
        return rows


def _open_session(path: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")  # idle threads would disturb the next candidate
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
