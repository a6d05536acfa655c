"""Results of original ONNX files, one text at a time: the outputs that `graphs.text` has, and logits of translation models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from triptych_export.onnx_files.adapters import END, LOGITS, START, TextForm, fixed_sizes, states_of, text_inputs
from triptych_export.onnx_files.checks import read_model
from triptych_export.onnx_files.decoder import ENCODED, SOURCE_MASK, STATES, decoder_inputs
from triptych_export.onnx_files.layout import OnnxFile
from triptych_export.onnx_files.trial import Arrays, try_run
from triptych_export.parity.comparison import Floats, Outputs, softmax
from triptych_export.parity.text import TextRow
from triptych_serving.bundle.manifest import FILL_MASK, QUESTION_ANSWERING, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION


def run_texts(file: OnnxFile, form: TextForm, rows: Sequence[TextRow]) -> list[Outputs]:
    """Run a file on each row alone.

    Raises:
        SourceError: the file cannot be run.
    """
    found = try_run(file.path, [_inputs(file, form, row) for row in rows], file.bytes)
    states = states_of(file.model, form.width)
    return [_outputs(form, outputs, row, states) for outputs, row in zip(found, rows, strict=True)]


def _inputs(file: OnnxFile, form: TextForm, row: TextRow) -> dict[str, NDArray[Any]]:
    """Make the inputs of one row; in a graph of fixed size it is padded, and other rows are copies."""
    most_rows, most_length = fixed_sizes(file.model)
    length = most_length or len(row.ids)
    inside = np.arange(length) < len(row.ids)
    ids, segments = np.full(length, form.pad), np.zeros(length, int)
    ids[inside], segments[inside] = row.ids, row.segments
    values = {"ids": ids, "mask": inside, "segments": segments, "positions": np.arange(length) + form.first_position}
    kinds = {one.name: helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in file.model.graph.input}
    meanings = text_inputs(file.model)
    return {name: np.tile(values[meanings[name]], (most_rows or 1, 1)).astype(kind) for name, kind in kinds.items()}


def _outputs(form: TextForm, outputs: Arrays, row: TextRow, states: str) -> Outputs:
    length = len(row.ids)
    answer: dict[str, Floats] = {}
    if states:
        hidden = outputs[states][0, :length].astype(np.float32)
        answer = {"mean": hidden.mean(0), "cls": hidden[0]}
    if form.task == QUESTION_ANSWERING:
        return answer | {"start": outputs[START[0]][0, :length], "end": outputs[END[0]][0, :length]}
    if form.task not in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION, FILL_MASK):
        return answer
    logits: Floats = outputs[LOGITS[0]][0].astype(np.float32)
    if form.task == TEXT_CLASSIFICATION:
        probabilities = 1 / (1 + np.exp(-logits)) if form.independent else softmax(logits)
        return answer | {"probabilities": probabilities, "logits": logits}
    if form.task == TOKEN_CLASSIFICATION:
        return answer | {"probabilities": softmax(logits[:length])}
    return answer | {"log_probabilities": np.log(softmax(logits[list(row.places)].astype(np.float64))).astype(np.float32)}


def run_seq2seq(files: Sequence[Path], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Floats]:
    """Compute the logits `[targets, V]` of targets after sources with Optimum's files: a decoder, and an encoder.

    Raises:
        SourceError: a file cannot be run.
    """
    [encoder] = [OnnxFile(path, read_model(path)) for path in files[1:]]
    encoded = try_run(encoder.path, [decoder_inputs(encoder.model, source) for source in sources], encoder.bytes)
    masks = [np.ones((1, len(source)), np.int64) for source in sources]
    more = [{STATES: outputs[ENCODED], SOURCE_MASK: mask} for outputs, mask in zip(encoded, masks, strict=True)]
    return run_decoder(files[0], targets, more)


def run_decoder(path: Path, targets: Sequence[Sequence[int]], more: Sequence[Arrays] = ()) -> list[Floats]:
    """Compute the logits `[targets, V]` of each target with Optimum's decoder; `more` are further inputs of each.

    Raises:
        SourceError: the file cannot be run.
    """
    file = OnnxFile(path, read_model(path))
    feeds = [decoder_inputs(file.model, target, own) for target, own in zip(targets, more or [{}] * len(targets), strict=True)]
    return [outputs["logits"][0] for outputs in try_run(file.path, feeds, file.bytes)]
