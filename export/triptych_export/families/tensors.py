"""Any other ONNX file: served with its own inputs and outputs, as a model of plain tensors."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice, product
from math import prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, TensorProto, ValueInfoProto, helper

from triptych_export.bundle_files import first_manifest, write_kept_graph, write_labels, write_manifest
from triptych_export.card import Description
from triptych_export.errors import ParityError, SourceError
from triptych_export.families.family import Report, Say
from triptych_export.families.image import image_spec
from triptych_export.huggingface.checkpoint.image import FILE as PROCESSOR
from triptych_export.huggingface.checkpoint.image import read_image_processor
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_export.onnx_files.checks import graph_inputs, graphs_of, tensors_of
from triptych_export.onnx_files.divisions import guard_divisions
from triptych_export.onnx_files.layout import OnnxFile
from triptych_export.onnx_files.scikit_learn import replace_locales, replace_maps
from triptych_export.onnx_files.trial import SEED, try_run
from triptych_serving.bundle.manifest import TENSORS
from triptych_serving.bundle.manifest.image import LABELS_FILE
from triptych_serving.bundle.manifest.tensors import BYTES, DATATYPES, NUMPY, TensorSpec, as_objects
from triptych_serving.runtime.session import CANNOT_LOAD, Session, seed_sessions

MOST_VALUES = 1 << 24  # of generated inputs: with many free dimensions, large sizes would fill the memory
# Sizes of free dimensions after the first that are tried where no samples are given: most graphs take any, some only multiples.
SIZES = (16, 1, 32, 48, 64, 128, 224, 512)
HIGHEST = (256, 2)  # integers below: bytes, then flags
ZERO = (1,)  # at last, of all sizes: integers may be indices of tables of one row, such as of speakers
IMAGES, COLOURS = 4, 3  # dimensions of images, of which either the second or the last are colours
ROWS, MOST_ROWS = 3, 8  # that are compared, alone and together; more than the first number only if these are too similar
TOLERANCE = 1e-4  # relative to the largest value of a tensor, between rows alone and together


class TensorsFamily:
    """An ONNX file with arbitrary tensors.

    Args:
        files: one graph by its precision.
        samples: .npz files with an array for each input; empty: random values.
        folder: may have preprocessor_config.json, for the only input of images, and labels.txt, for the output of that width.
            Beside config.json, the former may be for other inputs.

    Raises:
        SourceError: a file cannot be read, or the model has no such input or output, or no inputs, or one of an unknown shape.
    """

    default_name = TENSORS

    def __init__(self, files: Mapping[str, OnnxFile], samples: Sequence[str], folder: Folder) -> None:
        self.precision, self.file = next(iter(files.items()))
        self.default_precisions = (self.precision,)
        self.provenance: Mapping[str, Any] = {"onnx_file": self.file.path.name, "producer": self.file.model.producer_name}
        labels_of = replace_maps(self.file.model)
        inputs = graph_inputs(self.file.model)
        if not inputs:
            raise SourceError(f"{self.file.path}: the model has no inputs; its outputs are constants, which need no server")
        self.samples = [_read_sample(Path(path), [one.name for one in inputs]) for path in samples]
        self.inputs = {one.name: _input_spec(one, self.samples) for one in inputs}
        self.outputs = {one.name: _spec(one) for one in self.file.model.graph.output}
        self.names = {one.name: [size.dim_param for size in one.type.tensor_type.shape.dim] for one in inputs}
        self.rows = {names[0] for names in self.names.values() if names} - {""}  # names of the dimension of rows
        words = {word.decode(errors="ignore") for word in _words(self.file.model.graph)}
        self.words = np.array(sorted(words) or ["a", "b"], object)
        self.drawn: tuple[int, int, int] | None = None  # of generated samples: size, highest value, and axis of colours
        self.expected: list[dict[str, NDArray[Any]]] = []
        self.batches = False
        self.members: dict[str, Any] = {}
        self.labels: tuple[str, ...] = ()
        if folder.has(PROCESSOR):
            try:
                self._add_image(folder)
            except SourceError as error:
                if not folder.has(CONFIG):
                    raise
                self.provenance = {**self.provenance, "image_files_not_carried_over": str(error)}
        if folder.has(LABELS_FILE):
            self._add_labels(folder)
        elif len(labels_of) == 1:
            [(self.members["labels"], self.labels)] = labels_of.items()

    def describe(self) -> Description:
        rows = {f"input {name}": _text(spec) for name, spec in self.inputs.items()}
        rows |= {f"output {name}": _text(spec) for name, spec in self.outputs.items()}
        rows["rows of several requests run together"] = "yes" if self.batches else "no"
        return Description("A model that was imported from an ONNX file; its graph gives the same results.", rows)

    def write(self, folder: Path, say: Say) -> None:
        """Run the file on samples, then write the graph and a first manifest; see Family."""
        say("running the file on samples")
        if self.samples:
            self.expected = try_run(self.file.path, self.samples, self.file.bytes)
        else:
            self.samples, self.expected = self._generated()
        self._correct_outputs(self.expected, say)
        self.inputs = {name: replace(spec, empty=self._empty(name)) for name, spec in self.inputs.items()}
        self.batches = self._rows_are_independent(say)
        folder.mkdir()
        if count := guard_divisions(self.file.model):
            self.provenance = {**self.provenance, "guarded_integer_divisions": count}
        if count := replace_locales(self.file.model):
            self.provenance = {**self.provenance, "replaced_locales": count}
        write_kept_graph(self.file.model, self.file.path.parent, folder, self.precision)
        members = {self.precision: {"graph": f"graph.{self.precision}.onnx"}}
        if self.labels:
            write_labels(folder, self.labels)
        inputs, outputs = ({name: _record(spec) for name, spec in specs.items()} for specs in (self.inputs, self.outputs))
        self.members |= {"inputs": inputs, "outputs": outputs, "batches": self.batches}
        write_manifest(folder, first_manifest(TENSORS, "onnx", members, **self.members))

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Compare the written graph with the original file; see Family.

        Raises:
            ParityError: a result differs in any bit.
        """
        say("comparing with the original file")
        seed_sessions(SEED)
        session = Session(folder / f"graph.{self.precision}.onnx")
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
        path = folder.path / LABELS_FILE
        try:
            self.labels = tuple(path.read_text(encoding="utf-8-sig").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read as UTF-8: {error}") from error
        scores = {name: spec for name, spec in self.outputs.items() if spec.datatype != BYTES}
        fitting = [name for name, spec in scores.items() if spec.shape[1:] == (len(self.labels),)]
        if len(fitting) != 1:
            raise SourceError(f"{path}: {len(fitting)} outputs fit [rows, {len(self.labels)} labels]")
        self.members["labels"] = fitting[0]

    def _generated(self) -> tuple[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
        """Return random inputs that the file accepts, and their outputs."""
        images = any(len(spec.shape) == IMAGES and -1 in spec.shape[1::2] for spec in self.inputs.values())
        colours = (0, 1, 3) if images else (0,)
        choices = chain(product(SIZES, HIGHEST, colours), product(SIZES, ZERO, colours))
        drawn = [one for one in choices if one[0] == 1 or self._values(one[0], one[2]) <= MOST_VALUES]
        samples = [self._random(*one, np.random.default_rng(SEED)) for one in drawn]
        try:
            found = try_run(self.file.path, samples, self.file.bytes, first=True)
        except SourceError as error:
            if CANNOT_LOAD in str(error):
                raise
            wanted = ", ".join(f"{name} {_text(spec)}" for name, spec in self.inputs.items())
            remedy = f"if it needs other inputs than random ones, pass --valid SAMPLE.npz with the arrays {wanted}"
            raise SourceError(f"{error}; {remedy}") from error
        last = len(found) - 1
        self.drawn = drawn[last]
        if last:  # runs that failed may have drawn random numbers
            found[last:] = try_run(self.file.path, [samples[last]], self.file.bytes)
        return [samples[last]], [found[last]]

    def _empty(self, name: str) -> tuple[int, ...]:
        """Return the dimensions of an input that are 0 in a sample: a graph that was not tried so might end the process."""
        return tuple(sorted({axis for sample in self.samples for axis, size in enumerate(sample[name].shape) if size == 0}))

    def _values(self, size: int, colours: int) -> int:
        """Return the number of values of generated inputs."""
        return sum(prod(self._sizes(name, size, colours)) for name in self.inputs)

    def _sizes(self, name: str, size: int, colours: int) -> list[int]:
        """Return the shape of one row of an input, with this size in free dimensions.

        Of images, the axis `colours`, if it is not 0, has three, and those that are made of files have their own size.
        """
        shape, image = self.inputs[name].shape, self.members.get("image", {})
        free = [1 if axis == 0 or dimension in self.rows else size for axis, dimension in enumerate(self.names[name])]
        if image.get("input") == name:
            free[1:] = COLOURS, image["height"], image["width"]
        elif colours and len(shape) == IMAGES:
            free[colours] = COLOURS
        return [one if one > 0 else free[axis] for axis, one in enumerate(shape)]

    def _random(self, size: int, most: int, colours: int, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Return a random array for each input; texts are some that the graph stores: to it, others are alike."""
        arrays = {}
        for name, spec in self.inputs.items():
            sizes, kind = self._sizes(name, size, colours), np.dtype(NUMPY[spec.datatype])
            if spec.datatype == BYTES:
                arrays[name] = np.array(generator.choice(self.words, sizes), object)
            elif kind.kind == "f":
                arrays[name] = generator.uniform(0, 1, sizes).astype(kind)
            else:
                highest = 2 if kind == np.bool_ else np.iinfo(kind).max
                arrays[name] = generator.integers(0, min(most, highest), sizes).astype(kind)
        return arrays

    def _correct_outputs(self, results: Sequence[Mapping[str, NDArray[Any]]], say: Say) -> None:
        """Take from results the shapes that outputs do not declare, and sizes that are declared wrongly, as any size."""
        for one in self.file.model.graph.output:
            declared = spec = self.outputs[one.name]
            for found in results:
                spec = replace(spec, shape=_reconciled(spec.shape, found[one.name].shape))
            self.outputs[one.name] = spec
            if spec != declared and one.type.tensor_type.HasField("shape"):
                say(f"output {one.name:.60} is declared as {_text(declared)}, but is {_text(spec)}")

    def _rows_are_independent(self, say: Say) -> bool:
        """Run rows one by one and together, in two orders; equal results allow requests to share a batch."""
        rows = self._different_rows() if _are_rows(self.inputs) else []
        if not rows:
            return False
        together = [{name: np.concatenate([row[name] for row in order]) for name in rows[0]} for order in (rows, rows[::-1])]
        try:
            *alone, forwards, backwards = try_run(self.file.path, [*rows, *together], self.file.bytes)
        except SourceError:
            return False
        self._correct_outputs([forwards], say)
        if not _are_rows(self.outputs):
            return False
        orders = ((alone, forwards), (alone[::-1], backwards))
        return all(_rows_close([one[name] for one in wanted], got[name]) for wanted, got in orders for name in self.outputs)

    def _different_rows(self) -> list[dict[str, NDArray[Any]]]:
        """Return rows between which every input differs, of equal shapes; none if there are none."""
        generator = np.random.default_rng(SEED + 1)
        rows = list(islice(chain.from_iterable(map(_split, self.samples)), ROWS))
        rows = [row for row in rows if all(row[name].shape == array.shape for name, array in rows[0].items())]
        while rows and (len(rows) < ROWS or not _differ(rows)):
            if len(rows) == MOST_ROWS:
                return []
            if self.drawn is None:
                rows.append({name: _alike(array, generator) for name, array in rows[0].items()})
            else:
                rows.append(self._random(*self.drawn, generator))
        return rows


def _are_rows(specs: Mapping[str, TensorSpec]) -> bool:
    """Tell whether the first dimension of all tensors is free."""
    return all(spec.shape[:1] == (-1,) and 0 not in spec.empty for spec in specs.values())


def _record(spec: TensorSpec) -> dict[str, Any]:
    """Return a specification as in the manifest."""
    record = asdict(spec)
    return record if spec.empty else {name: value for name, value in record.items() if name != "empty"}


def _split(sample: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the rows of a sample; none if its inputs have different numbers of rows."""
    [count, *others] = {array.shape[:1] for array in sample.values()}
    for row in range(*count) if count and not others else ():
        yield {name: array[row : row + 1] for name, array in sample.items()}


def _differ(rows: Sequence[Mapping[str, NDArray[Any]]]) -> bool:
    """Tell whether every input has another value in at least one of the rows."""
    first, *others = rows
    return all(any(not np.array_equal(first[name], other[name]) for other in others) for name in first)


def _alike(array: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Return other values of the same kind: some of the array's, in another order; those of floats are made smaller.

    If all integers or booleans are equal, the others are between this value and 0, or 0 and 1.
    """
    if array.size and array.dtype.kind in "biu" and (array == array.flat[0]).all():
        value = int(array.flat[0])
        return generator.integers(min(value, 0), max(value, 1), array.shape, array.dtype, endpoint=True)
    chosen = generator.choice(array.ravel(), array.shape) if array.size else array
    return chosen * generator.uniform(0.5, 1) if array.dtype.kind == "f" else chosen


def _rows_close(want: Sequence[NDArray[Any]], got: NDArray[Any]) -> bool:
    return len(got) == len(want) and all(_close(one, got[row : row + 1]) for row, one in enumerate(want))


def _close(want: NDArray[Any], got: NDArray[Any]) -> bool:
    if want.shape != got.shape or want.dtype.kind != "f":
        return np.array_equal(want, got)
    return bool(np.allclose(want, got, rtol=0, atol=TOLERANCE * max(1e-6, float(np.abs(want).max(initial=0.0)))))


def _spec(one: ValueInfoProto) -> TensorSpec:
    """Return datatype and shape; raises SourceError if it is no tensor of numbers."""
    kind = one.type.tensor_type
    if not one.type.HasField("tensor_type"):
        found = one.type.WhichOneof("value")
        raise SourceError(f"tensor {one.name!r:.60}: it is no tensor, but of the kind {found}; add nodes such as SequenceAt")
    try:
        datatype = DATATYPES[helper.tensor_dtype_to_np_dtype(kind.elem_type)]
    except (KeyError, TypeError, ValueError) as error:
        names = {number: name for name, number in TensorProto.DataType.items()}
        found = names.get(kind.elem_type, kind.elem_type)
        problem = f"its type is {found}; supported: {', '.join(NUMPY)}; add a Cast node"
        raise SourceError(f"tensor {one.name!r:.60}: {problem}") from error
    return TensorSpec(datatype, tuple(size.dim_value if size.dim_value > 0 else -1 for size in kind.shape.dim))


def _input_spec(one: ValueInfoProto, samples: Sequence[Mapping[str, NDArray[Any]]]) -> TensorSpec:
    """Return datatype and shape, whose rank a sample tells if the file does not; raises SourceError."""
    spec, kind = _spec(one), one.type.tensor_type
    if not kind.HasField("shape"):
        if not samples:
            remedy = "declare it in the file, or pass --valid SAMPLE.npz, whose array tells the number of dimensions"
            raise SourceError(f"input {one.name!r:.60} has no shape: {remedy}")
        return replace(spec, shape=(-1,) * samples[0][one.name].ndim)
    for axis, size in enumerate(kind.shape.dim):
        if size.HasField("dim_value") and size.dim_value == 0:
            raise SourceError(f"dimension {axis} of {one.name:.60} is 0: an input without values cannot be served; remove it")
    return spec


def _reconciled(declared: Sequence[int], found: Sequence[int]) -> tuple[int, ...]:
    """Return a declared shape with any size where a result has another one."""
    if len(declared) != len(found):
        return (-1,) * len(found)
    return tuple(a if a == b else -1 for a, b in zip(declared, found, strict=True))


def _text(spec: TensorSpec) -> str:
    return f"{spec.datatype} [{', '.join('any' if size < 0 else str(size) for size in spec.shape)}]"


def _words(graph: GraphProto) -> Iterator[bytes]:
    """Yield the texts that a graph stores, such as a vocabulary, categories and labels."""
    for tensor in tensors_of(graph):
        yield from tensor.string_data
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from attribute.strings
        for inner in graphs_of(attribute):
            yield from _words(inner)


def _read_sample(path: Path, inputs: Collection[str]) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            sample = {name: as_objects(stored[name]) for name in stored.files}
    except (OSError, ValueError, EOFError, TypeError, BadZipFile) as error:  # or a .npy file
        reason = "it holds objects; save texts with array.astype(str)" if "allow_pickle" in str(error) else error
        raise SourceError(f"{path}: cannot be read as .npz: {reason}") from error
    if sample.keys() != set(inputs):
        raise SourceError(f"{path}: holds {', '.join(sample) or 'nothing'}, the inputs are {', '.join(inputs)}")
    return sample
