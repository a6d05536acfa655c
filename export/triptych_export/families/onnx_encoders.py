"""Encoders that exist as ONNX files: the graphs are kept, and get the inputs and outputs of our own encoders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from triptych_export.bundle_files import first_manifest, write_kept_graph, write_labels, write_manifest, write_tokenizer
from triptych_export.card import Description
from triptych_export.errors import ParityError, SourceError
from triptych_export.families.family import Report, Say
from triptych_export.families.image import GENERATED_IMAGES, PARITY_IMAGES, image_spec, read_image
from triptych_export.families.text import PARITY_TEXTS, SHORT
from triptych_export.huggingface.checkpoint.image import class_names, read_image_processor
from triptych_export.huggingface.checkpoint.sentence_transformers import (
    MODEL_FILE,
    MODULES,
    classifier_settings,
    prepare_tokenizer,
    read_modules,
    read_sentence_settings,
)
from triptych_export.huggingface.checkpoint.text import is_independent, is_regression, read_labels, special_ids
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.tokenizer import text_tokenizer
from triptych_export.onnx_files.adapters import (
    END,
    LOGITS,
    START,
    TextForm,
    adapt_image,
    adapt_text,
    fixed_sizes,
    states_of,
    text_inputs,
)
from triptych_export.onnx_files.checks import graph_inputs
from triptych_export.onnx_files.layout import OnnxFile
from triptych_export.onnx_files.trial import Arrays, try_run
from triptych_export.parity.comparison import (
    QUANTIZED_BATCH,
    Floats,
    Outputs,
    check_answers,
    compare_answers,
    softmax,
    spread,
    with_neighbours,
)
from triptych_export.parity.image import Pixels, answer_images_in_session, generate_images
from triptych_export.parity.text import RowForm, TextRow, absent_ids, answer_in_session, make_rows, random_rows
from triptych_serving.bundle.manifest import (
    FILL_MASK,
    IMAGE_CLASSIFICATION,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TEXT_EMBEDDING,
    TOKEN_CLASSIFICATION,
)
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import Sample

# By suffix of the class that config.json names.
TASKS: Mapping[str, str] = {
    "ForMaskedLM": FILL_MASK,
    "ForSequenceClassification": TEXT_CLASSIFICATION,
    "ForTokenClassification": TOKEN_CLASSIFICATION,
    "ForQuestionAnswering": QUESTION_ANSWERING,
    "ForImageClassification": IMAGE_CLASSIFICATION,
    "Model": TEXT_EMBEDDING,
}
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}  # of pixels or audio
COPIED = ("cls", "logits", "start", "end")  # outputs that no added node computes
# Types whose first position is the padding id + 1.
COUNTED_FROM_PAD = (
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert"),
    *("mpnet", "data2vec-text", "ibert", "longformer", "xmod"),
)


def task_of(folder: Folder, files: Mapping[str, OnnxFile]) -> str:
    """Return the task of an encoder by the class that config.json names; empty if it is none of texts or images."""
    inputs = [one.type.tensor_type.elem_type for file in files.values() for one in graph_inputs(file.model)]
    takes_texts = not set(inputs) & FLOATS
    if takes_texts and any(
        kind == "Pooling" for kind, _ in read_modules(folder)
    ):  # folders of a CrossEncoder have modules, too
        return TEXT_EMBEDDING
    named = (task for suffix, task in TASKS.items() if folder.architecture.endswith(suffix))
    return next((task for task in named if takes_texts or task == IMAGE_CLASSIFICATION), "")


def _size(folder: Folder, *names: str) -> int:
    """Return the first of these members that config.json has. Raises SourceError: it has none, or no number."""
    found = next((folder.config[name] for name in names if folder.config.get(name) is not None), None)
    if not isinstance(found, int):
        raise folder.config_error(f"{names[0]}: {found!r:.40}, expected a number; add that of the ONNX file's model")
    return found


class OnnxEncoder(ABC):
    """Base of text encoders and image classifiers from ONNX files.

    Args:
        folder: tokenizer or image processor, and config.json.
        files: the graphs by precision.
    """

    def __init__(self, folder: Folder, files: Mapping[str, OnnxFile]) -> None:
        self.folder, self.files = folder, files
        self.default_name = self.task = task_of(folder, files)
        self.default_precisions = tuple(files)
        self.provenance: Mapping[str, Any] = {
            "architecture": folder.architecture,
            "onnx_files": ", ".join(file.path.name for file in files.values()),
        }

    def write(self, folder: Path, say: Say) -> None:
        """Write the adapted graphs, the files beside them and a first manifest; see Family."""
        folder.mkdir()
        for precision, file in self.files.items():
            say(f"adapting {file.path.name} ({precision})")
            write_kept_graph(self._adapted(file.model), file.path.parent, folder, precision)
        self._write_files(folder)
        members = {precision: {"graph": f"graph.{precision}.onnx"} for precision in self.files}
        write_manifest(folder, first_manifest(self.task, self.folder.model_type or "onnx", members, **self._members()))

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Compare the adapted graphs with the original files; see Family.

        Raises:
            ParityError: the results differ, or depend on other rows of a batch.
            SourceError: an original file cannot be run.
        """
        parity: Report = {}
        reference: list[Outputs] | None = None
        for precision, file in self.files.items():
            say(f"comparing with {file.path.name}")
            own = self._originals(file)  # before the session: what is wrong with the file is an error of the file
            session = Session(folder / f"graph.{precision}.onnx")
            alone = self._run(session, 1)
            reference = reference or own
            report = check_answers(own, lambda _: alone)  # noqa: B023
            if precision == "fp32":
                try:
                    report = check_answers(own, lambda rows: alone if rows == 1 else self._run(session, rows))  # noqa: B023
                except ParityError as error:
                    problem = f"{file.path}: an answer depends on the rows or the padding beside it: {error}"
                    remedy = "" if self.task == IMAGE_CLASSIFICATION else "; export the file again with a first dimension of 1"
                    raise ParityError(f"{problem}{remedy}") from error
            else:  # a scale of a whole batch may change a row's result
                report |= compare_answers(reference, self._run(session, QUANTIZED_BATCH))
            same = all(np.array_equal(w[n], g[n]) for w, g in zip(own, alone, strict=True) for n in COPIED if n in w)
            parity[precision] = {**report, "original_outputs_bitwise_equal": same}
        return parity, {}

    @abstractmethod
    def describe(self) -> Description:
        """Describe the model for its card."""

    @abstractmethod
    def _adapted(self, model: ModelProto) -> ModelProto: ...

    @abstractmethod
    def _members(self) -> dict[str, Any]:
        """Members of the manifest that belong to the task."""

    @abstractmethod
    def _write_files(self, folder: Path) -> None: ...

    @abstractmethod
    def _originals(self, file: OnnxFile) -> list[Outputs]:
        """Run the original file on all samples, one by one."""

    @abstractmethod
    def _run(self, session: Session, size: int) -> list[Outputs]:
        """Run an adapted graph on all samples, in batches of `size`."""


class OnnxTextEncoder(OnnxEncoder):
    """A text encoder; `samples` are texts for parity, empty: random tokens."""

    def __init__(self, folder: Folder, files: Mapping[str, OnnxFile], samples: Sequence[Sample]) -> None:
        super().__init__(folder, files)
        self.samples = samples
        self.tokenizer = text_tokenizer(folder)
        self.settings = read_sentence_settings(folder) or classifier_settings(folder)
        self.special = special_ids(folder, self.tokenizer, masks=self.task == FILL_MASK)
        prepare_tokenizer(self.tokenizer, self.settings)
        if self.settings.layers:
            problem = "Dense and LayerNorm are not supported beside an ONNX file, which does not compute them"
            raise SourceError(f"{folder.path / MODULES}: {problem}")
        if self.settings.dimensions:
            remedy = "remove it, and let requests name dimensions"
            raise SourceError(f"{folder.path / MODEL_FILE}: truncate_dim is not supported beside an ONNX file; {remedy}")
        self.labels = read_labels(folder) if self.task in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION) else ()
        vocabulary = _size(folder, "vocab_size")
        self.form = TextForm(
            self.task,
            self.special.pad,
            _size(folder, "hidden_size", "dim", "d_model"),
            sorted(absent_ids(self.tokenizer, vocabulary)),
            independent=self.task == TEXT_CLASSIFICATION and is_independent(folder, len(self.labels)),
            first_position=self.special.pad + 1 if folder.model_type in COUNTED_FROM_PAD else 0,
        )
        sizes = [fixed_sizes(file.model) for file in files.values()]
        self.most_rows = min((rows for rows, _ in sizes if rows), default=0)
        positions = _size(folder, "max_position_embeddings") - self.form.first_position
        limits = [positions, self.settings.max_tokens or positions, *(length for _, length in sizes if length)]
        self.max_tokens = min(limits)
        self.rows_form = RowForm(vocabulary, self.max_tokens, self.special.mask if self.task == FILL_MASK else None)
        self.has_vectors = True

    def describe(self) -> Description:
        rows: dict[str, Any] = {"longest text (tokens)": self.max_tokens, "vocabulary": self.rows_form.vocabulary_size}
        if self.labels:
            rows["labels"] = ", ".join(self.labels)
        return Description("A model that was imported from ONNX files; its graphs are unchanged.", rows)

    def _adapted(self, model: ModelProto) -> ModelProto:
        adapted = adapt_text(model, self.form)
        self.has_vectors = self.has_vectors and any(one.name == "mean" for one in adapted.graph.output)
        if self.task == TEXT_EMBEDDING and not self.has_vectors:
            names = ", ".join(one.name for one in model.graph.output)
            raise SourceError(f"no output has hidden states [rows, tokens, {self.form.width}]; there are: {names}")
        return adapted

    def _members(self) -> dict[str, Any]:
        special = self.special
        members: dict[str, Any] = {
            "tokens": {"pad": special.pad, "cls": special.cls, "sep": special.sep, "mask": special.mask},
            "limits": {"max_tokens": self.max_tokens, **({"max_rows": self.most_rows} if self.most_rows else {})},
            "hidden_size": self.form.width,
        }
        if self.labels:
            members["labels"] = list(self.labels)
        if self.task == TEXT_CLASSIFICATION:
            members |= {"pairs": True, "singles": True, "logits": True}
            members |= {"regression": True} if is_regression(self.folder) else {}
        if not self.has_vectors:
            members["vectors"] = False
        heads = self.folder.config.get("num_attention_heads")
        if self.max_tokens > SHORT and type(heads) is int and heads > 0:
            members["pair_bytes"] = 8 * heads  # scores, and their softmax
        if self.settings.choices:
            members["prompts"] = dict(self.settings.choices)
        return {**members, "pooling": self.settings.pooling, "normalize": self.settings.normalize}

    def _write_files(self, folder: Path) -> None:
        write_tokenizer(self.tokenizer, folder / "tokenizer.json")

    @cached_property
    def _rows(self) -> list[TextRow]:
        if self.samples:
            return make_rows(self.tokenizer, self.rows_form, spread(self.samples, PARITY_TEXTS))
        return random_rows(self.tokenizer, self.rows_form, pairs=self.task in (TEXT_CLASSIFICATION, QUESTION_ANSWERING))

    def _run(self, session: Session, size: int) -> list[Outputs]:
        size = min(size, self.most_rows or size)
        return self._compared(answer_in_session(session, self._rows, size, self.special.pad, self.form.absent))

    def _originals(self, file: OnnxFile) -> list[Outputs]:
        found = try_run(file.path, [_inputs(file.model, self.form, row) for row in self._rows], file.bytes)
        states = states_of(file.model, self.form.width)
        return self._compared([_outputs(self.form, one, row, states) for one, row in zip(found, self._rows, strict=True)])

    def _compared(self, answers: list[Outputs]) -> list[Outputs]:
        """Add what a model that only makes vectors decides: which text is nearest."""
        return with_neighbours(answers, self.settings.pooling) if self.task == TEXT_EMBEDDING else answers


def _inputs(model: ModelProto, form: TextForm, row: TextRow) -> dict[str, NDArray[Any]]:
    """Make the inputs of one row; in a graph of fixed size it is padded, and other rows are copies."""
    most_rows, most_length = fixed_sizes(model)
    length = most_length or len(row.ids)
    inside = np.arange(length) < len(row.ids)
    ids, segments = np.full(length, form.pad), np.zeros(length, int)
    ids[inside], segments[inside] = row.ids, row.segments
    values = {"ids": ids, "mask": inside, "segments": segments, "positions": np.arange(length) + form.first_position}
    kinds = {one.name: helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in model.graph.input}
    meanings = text_inputs(model)
    return {name: np.tile(values[meanings[name]], (most_rows or 1, 1)).astype(kind) for name, kind in kinds.items()}


def _outputs(form: TextForm, outputs: Arrays, row: TextRow, states: str) -> Outputs:
    """Compute the outputs that `graphs.text` has from those of an original file."""
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


class OnnxImageClassifier(OnnxEncoder):
    """An image classifier; `images` are files for parity, empty: generated images."""

    def __init__(self, folder: Folder, files: Mapping[str, OnnxFile], images: Sequence[str]) -> None:
        super().__init__(folder, files)
        self.image = read_image_processor(folder)
        self.spec = image_spec(self.image)
        self.labels = class_names(folder, len(folder.config.get("id2label") or {}) or int(folder.config.get("num_labels", 2)))
        chosen = [read_image(path, self.spec) for path in spread(list(images), PARITY_IMAGES)]
        self.images: list[Pixels] = chosen or generate_images(GENERATED_IMAGES, self.spec.height, self.spec.width)

    def describe(self) -> Description:
        rows = {"image (pixels)": f"{self.spec.width} x {self.spec.height}", "classes": len(self.labels)}
        return Description("An image classifier that was imported from ONNX files; its graphs are unchanged.", rows)

    def _adapted(self, model: ModelProto) -> ModelProto:
        return adapt_image(model, self.image)

    def _members(self) -> dict[str, Any]:
        return {"label_count": len(self.labels), "image": asdict(self.image)}

    def _write_files(self, folder: Path) -> None:
        write_labels(folder, self.labels)

    def _run(self, session: Session, size: int) -> list[Outputs]:
        return answer_images_in_session(session, self.images, size, len(self.labels))

    def _originals(self, file: OnnxFile) -> list[Outputs]:
        # In the order of the adapter's nodes: int8 graphs round pixels, so that the last bit can change the results.
        mean, std = (np.array([255 * one for one in values], np.float32) for values in (self.image.mean, self.image.std))
        [given] = graph_inputs(file.model)
        kind = helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
        scaled = [((pixels - mean) / std).astype(kind) for pixels in self.images]
        feeds = [{given.name: pixels.transpose(2, 0, 1)[None]} for pixels in scaled]
        logits = [next(iter(outputs.values()))[0].astype(np.float32) for outputs in try_run(file.path, feeds, file.bytes)]
        if len(logits[0]) != len(self.labels):
            raise SourceError(f"{file.path}: {len(logits[0])} classes, config.json names {len(self.labels)}")
        return [{"probabilities": softmax(row[None])[0]} for row in logits]
