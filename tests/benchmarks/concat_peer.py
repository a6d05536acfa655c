"""The plain ONNX graph as an exporter such as Optimum makes and runs it: the past is joined in the graph, logits come out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from candidate import Answer, Candidate, Decoding
from concat_graphs import export_decoder, export_encoder, names
from numpy.typing import NDArray

from triptych_training.checkpoints.translation import Checkpoint

Array = NDArray[Any]


class ConcatPeer(Candidate):
    """Greedy; a call is one padded batch that ends with its last sentence.

    Args:
        checkpoint: the model.
        folder: for the graphs.
        precision: fp32 or int8.
        cpus: threads inside an operator.
    """

    name, family = "ONNX concat", "ONNX concat"
    searches_beams = False

    def __init__(self, checkpoint: Checkpoint, folder: Path, precision: str, cpus: int) -> None:
        self._config, self._tokenizer = checkpoint.model.config, checkpoint.tokenizer
        folder.mkdir(parents=True)
        export_encoder(checkpoint.model, folder / "encoder.onnx", precision)
        export_decoder(checkpoint.model, folder / "decoder.onnx", precision)
        self._encoder, self._decoder = (_open(folder / f"{kind}.onnx", cpus) for kind in ("encoder", "decoder"))
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
        """`[B, S]` -> at most `limit` ids a row; after its end a row's ids mean nothing."""
        config, mask = self._config, source != self._config.pad_id
        memory = dict(zip(self._memory, self._encoder.run(None, {"source": source, "mask": mask}), strict=True))
        nothing = np.zeros((len(source), config.heads, 0, config.model_dim // config.heads), np.float32)
        past = [nothing] * len(self._past)
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


def _open(path: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")  # or its threads would disturb the next candidate
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
