"""Any other ONNX file: served with its own inputs and outputs, as a model of plain tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ValueInfoProto, helper

from triptych_export.bundle_files import first_manifest, open_encoder, write_kept_graph, write_labels, write_manifest
from triptych_export.card import Description
from triptych_export.errors import ParityError, SourceError
from triptych_export.families.family import Report, Say
from triptych_export.families.image import image_spec
from triptych_export.huggingface.checkpoint.image import FILE as PROCESSOR
from triptych_export.huggingface.checkpoint.image import read_image_processor
from triptych_export.huggingface.folder import Folder
from triptych_export.onnx_files.checks import graph_inputs
from triptych_export.onnx_files.layout import OnnxFile
from triptych_export.onnx_files.trial import try_run
from triptych_serving.bundle.manifest import TENSORS
from triptych_serving.bundle.manifest.image import LABELS_FILE
from triptych_serving.bundle.manifest.tensors import NUMPY, TensorSpec, datatype_of

# Sizes of free dimensions after the first that are tried where no samples are given: most graphs take any, some only multiples.
SIZES = (16, 1, 32, 48, 64, 128, 224, 512)
HIGHEST = (256, 2)  # integers below: bytes, then flags
SEED = 27
TOLERANCE = 1e-4  # relative to the largest value of a tensor, between rows alone and together


class TensorsFamily:
    """An ONNX file with arbitrary tensors.

    Args:
        files: one graph by its precision.
        samples: .npz files with an array for each input; empty: random values.
        folder: may have preprocessor_config.json, for the only input of images, and labels.txt, for the output of that width.

    Raises:
        SourceError: a file cannot be read, or the model has no such input or output.
    """

    default_name = TENSORS

    def __init__(self, files: Mapping[str, OnnxFile], samples: Sequence[str], folder: Folder) -> None:
        [(self.precision, self.file)] = list(files.items())[:1]
        self.default_precisions = (self.precision,)
        self.provenance: Mapping[str, Any] = {"onnx_file": self.file.path.name, "producer": self.file.model.producer_name}
        self.inputs = {one.name: _spec(one) for one in graph_inputs(self.file.model)}
        self.outputs = {one.name: _spec(one) for one in self.file.model.graph.output}
        self.samples = [_read_sample(Path(path), self.inputs) for path in samples]
        self.expected: list[dict[str, NDArray[Any]]] = []
        self.batches = False
        self.members: dict[str, Any] = {}
        self.labels: tuple[str, ...] = ()
        if folder.has(PROCESSOR):
            self._add_image(folder)
        if folder.has(LABELS_FILE):
            self._add_labels(folder)

    def describe(self) -> Description:
        rows = {f"input {name}": _text(spec) for name, spec in self.inputs.items()}
        rows |= {f"output {name}": _text(spec) for name, spec in self.outputs.items()}
        rows["rows of several requests run together"] = "yes" if self.batches else "no"
        return Description("A model that was imported from an ONNX file; its graph is unchanged.", rows)

    def write(self, folder: Path, say: Say) -> None:
        """Run the file on samples, then write the graph and a first manifest; see Family."""
        say("running the file on samples")
        if self.samples:
            self.expected = try_run(self.file.path, self.samples, self.file.bytes)
        else:
            self.samples, self.expected = self._generated()
        self.batches = self._rows_are_independent()
        folder.mkdir()
        write_kept_graph(self.file.model, self.file.path.parent, folder, self.precision)
        members = {self.precision: {"graph": f"graph.{self.precision}.onnx"}}
        if self.labels:
            write_labels(folder, self.labels)
        inputs, outputs = ({name: asdict(spec) for name, spec in specs.items()} for specs in (self.inputs, self.outputs))
        self.members |= {"inputs": inputs, "outputs": outputs, "batches": self.batches}
        manifest = first_manifest(TENSORS, "onnx", members, **self.members)
        write_manifest(folder, {**manifest, "default_precision": self.precision})

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Compare the written graph with the original file; see Family.

        Raises:
            ParityError: a result differs in any bit.
        """
        say("comparing with the original file")
        session = open_encoder(folder, self.precision)
        for number, (inputs, want) in enumerate(zip(self.samples, self.expected, strict=True)):
            for name, got in zip(session.outputs, session.run(inputs), strict=True):
                if not np.array_equal(want[name], got, equal_nan=got.dtype.kind == "f"):
                    raise ParityError(f"sample {number}, output {name}: differs from that of {self.file.path.name}")
        return {self.precision: {"kept": True, "samples": len(self.samples), "outputs_bitwise_equal": True}}, {}

    def _add_image(self, folder: Folder) -> None:
        """Note how image files become an input."""
        image = read_image_processor(folder)
        image_spec(image)
        wanted = (3, image.height, image.width)
        shapes = {n: spec.shape[1:] for n, spec in self.inputs.items() if spec.datatype[:2] == "FP" and len(spec.shape) == 4}
        fitting = [name for name, sizes in shapes.items() if all(a in (-1, b) for a, b in zip(sizes, wanted, strict=True))]
        if len(fitting) != 1:
            raise SourceError(f"{folder.path / PROCESSOR}: {len(fitting)} inputs fit [rows, {', '.join(map(str, wanted))}]")
        self.members["image"] = {"input": fitting[0], **asdict(image)}

    def _add_labels(self, folder: Folder) -> None:
        """Note the output that the labels belong to."""
        self.labels = tuple((folder.path / LABELS_FILE).read_text(encoding="utf-8").splitlines())
        fitting = [name for name, spec in self.outputs.items() if spec.shape[1:] == (len(self.labels),)]
        if len(fitting) != 1:
            raise SourceError(f"{folder.path / LABELS_FILE}: {len(fitting)} outputs fit [rows, {len(self.labels)} labels]")
        self.members["labels"] = fitting[0]

    def _generated(self) -> tuple[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
        """Return random inputs that the file accepts, and their outputs."""
        samples = []
        for size, most in product(SIZES, HIGHEST):
            generator = np.random.default_rng(SEED)
            samples.append({name: _random(spec, size, most, generator) for name, spec in self.inputs.items()})
        try:
            found = try_run(self.file.path, samples, self.file.bytes, first=True)
        except SourceError as error:
            raise SourceError(f"{error}; if it needs other inputs than random ones, pass --valid SAMPLE.npz") from error
        return [samples[len(found) - 1]], [found[-1]]

    def _rows_are_independent(self) -> bool:
        """Run the rows of a sample one by one and together; equal results allow requests to share a batch."""
        tensors = (*self.inputs.values(), *self.outputs.values())
        if any(spec.shape[:1] != (-1,) for spec in tensors):
            return False
        one = self.samples[0]
        generator = np.random.default_rng(SEED + 1)
        other = {name: generator.permuted(array) for name, array in one.items()}  # other values of the same kind
        both = {name: np.concatenate([one[name], other[name]]) for name in one}
        try:
            first, second, together = try_run(self.file.path, [one, other, both], self.file.bytes)
        except SourceError:
            return False
        return all(_close(np.concatenate([first[name], second[name]]), together[name]) for name in self.outputs)


def _close(want: NDArray[Any], got: NDArray[Any]) -> bool:
    if want.shape != got.shape or want.dtype.kind != "f":
        return np.array_equal(want, got)
    return bool(np.allclose(want, got, rtol=0, atol=TOLERANCE * max(1e-6, float(np.abs(want).max(initial=0.0)))))


def _spec(one: ValueInfoProto) -> TensorSpec:
    """Return datatype and shape; raises SourceError if it is no tensor of numbers."""
    kind = one.type.tensor_type
    try:
        datatype = datatype_of(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"tensor {one.name!r:.60}: only tensors of numbers are supported") from error
    return TensorSpec(datatype, tuple(size.dim_value if size.dim_value > 0 else -1 for size in kind.shape.dim))


def _text(spec: TensorSpec) -> str:
    return f"{spec.datatype} [{', '.join('any' if size < 0 else str(size) for size in spec.shape)}]"


def _random(spec: TensorSpec, size: int, most: int, generator: np.random.Generator) -> NDArray[Any]:
    sizes = [one if one > 0 else 1 if axis == 0 else size for axis, one in enumerate(spec.shape)]
    kind = np.dtype(NUMPY[spec.datatype])
    if kind.kind == "f":
        return generator.uniform(0, 1, sizes).astype(kind)
    return generator.integers(0, min(most, 2 if kind == np.bool_ else np.iinfo(kind).max), sizes).astype(kind)


def _read_sample(path: Path, inputs: Mapping[str, TensorSpec]) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            sample = {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read as .npz: {error}") from error
    if sample.keys() != inputs.keys():
        raise SourceError(f"{path}: holds {', '.join(sample) or 'nothing'}, the inputs are {', '.join(inputs)}")
    return sample
