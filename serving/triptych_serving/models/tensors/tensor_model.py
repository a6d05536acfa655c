"""A loaded model of plain tensors: an ONNX graph behind one engine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from triptych_serving.bundle.bundle import Bundle, read_labels
from triptych_serving.bundle.manifest import TensorsManifest
from triptych_serving.bundle.manifest.image import LABELS_FILE
from triptych_serving.bundle.manifest.tensors import BYTES, NUMPY, TensorSpec, as_objects
from triptych_serving.encoding.loading import GraphRunners
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions, Work
from triptych_serving.encoding.tensor_runner import TensorRows, TensorRunner, Tensors
from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.images.decode import decode_image
from triptych_serving.models.capabilities import describe
from triptych_serving.models.encoder_model import OneShotModel
from triptych_serving.models.labels import ScoredLabel, rank_labels
from triptych_serving.models.request_cost import check_rows
from triptych_serving.runtime.session import Array, Session
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Item

ELEMENTS_PER_TOKEN = 256  # the unit of batch sizes, as for images


class TensorModel(OneShotModel):
    """A model of plain tensors."""

    manifest: TensorsManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions = DEFAULTS) -> None:
        self.manifest = bundle.manifest_of(TensorsManifest)
        if not self.manifest.batches:
            options = replace(options, limits=replace(options.limits, batch_rows=1))
        super().__init__(name, version, bundle, options)
        self.text_inputs = frozenset(name for name, spec in self.manifest.inputs.items() if spec.datatype == BYTES)
        self.labels = read_labels(bundle.path(LABELS_FILE)) if self.manifest.labels else ()
        file = self.manifest.precisions[self.precision]
        self._encoder = self._load_graph(
            bundle, options, file, GraphRunners(on_cpu=lambda session: self._runner(session, bundle))
        )
        self.engine = self._encoder.engine

    def _runner(self, session: Session, bundle: Bundle) -> TensorRunner:
        """Return a runner. Raises BundleError: inputs or outputs of the manifest are not those of the graph."""
        inputs, outputs, taken = self.manifest.inputs, self.manifest.outputs, session.inputs
        faults = [
            f"inputs.{name:.60}: the graph has no such input"
            for name in sorted(inputs.keys() - {*taken, *session.optional_inputs})
        ]
        faults += [f"inputs: {name:.60} is missing, which the graph takes" for name in taken if name not in inputs]
        faults += [f"outputs.{name:.60}: the graph has no such output" for name in sorted(outputs.keys() - {*session.outputs})]
        for name in sorted(inputs.keys() & {*taken}):
            spec, shape, kind = inputs[name], session.shape(name), session.dtype(name)  # () where it declares no shape
            fits = all(not isinstance(size, int) or size in (0, own) for own, size in zip(spec.shape, shape, strict=False))
            if not fits or len(shape) not in (0, len(spec.shape)):
                faults.append(f"inputs.{name:.60}.shape is {list(spec.shape)}, the graph takes {list(shape)}")
            if kind != np.dtype(NUMPY[spec.datatype]):
                faults.append(f"inputs.{name:.60}.datatype is {spec.datatype}, the graph takes {kind}")
        if faults:
            raise BundleError(bundle.folder, faults)
        return TensorRunner(session)

    def prepare(self, inputs: Tensors, outputs: Sequence[str] = ()) -> Work[Mapping[str, Array]]:
        """Check the tensors of one request; the resulting work's item goes to `engine`.

        Args:
            inputs: every input of the model by name, of the declared types and shapes; BYTES are str objects.
            outputs: names; empty: all.

        Raises:
            InvalidInputError: an input or output is unknown or missing, or has another type or shape.
        """
        manifest = self.manifest
        _check_names("inputs", inputs, manifest.inputs)
        if missing := manifest.inputs.keys() - inputs.keys():
            raise InvalidInputError("inputs", f"missing input {min(missing)}; there are: {_listed(manifest.inputs)}")
        _check_names("outputs", outputs, manifest.outputs)
        for name, spec in manifest.inputs.items():
            _check_tensor(name, inputs[name], spec)
        rows = 1
        if manifest.batches:
            lengths = {name: len(array) for name, array in inputs.items()}
            rows = next(iter(lengths.values()))
            if other := next((name for name, length in lengths.items() if length != rows), ""):
                raise InvalidInputError(other, f"{lengths[other]:,} rows, {next(iter(lengths))} has {rows:,}")
        check_rows("inputs", rows, self._limits)
        payload = TensorRows({name: inputs[name] for name in manifest.inputs}, rows, tuple(outputs or manifest.outputs))
        size = sum(map(_size, inputs.values()))
        item = Item(payload, max(1, size // ELEMENTS_PER_TOKEN))
        return Work([item], lambda: iter([item.result]), size, "inputs")

    def read_images(self, name: str, files: Sequence[bytes]) -> Array:
        """Make the input `name` of JPEG, PNG or WebP files, one for each row, as the manifest says.

        Raises:
            InvalidInputError: the input takes no images; or a file is no image, damaged or too large, or there are too many.
        """
        image = self.manifest.image
        if image is None or image.input != name:
            raise InvalidInputError(name, "it takes no image files (BYTES), see the model's metadata for its datatype")
        check_rows(name, len(files), self._limits)
        values, most = len(files) * image.spec.height * image.spec.width * 3, self._limits.waiting_tokens * ELEMENTS_PER_TOKEN
        if values > most:
            raise InvalidInputError(
                name, f"{len(files):,} images have {values:,} values, at most {most:,} can wait; send fewer"
            )
        pixels = [decode_image(data, image.spec, f"{name}[{index}]").pixels for index, data in enumerate(files)]
        mean, std = (np.array(values, np.float32) for values in (image.mean, image.std))
        scaled = (np.stack(pixels).astype(np.float32) / 255 - mean) / std
        kind = NUMPY[self.manifest.inputs[name].datatype]
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2)).astype(kind)

    def rank(self, name: str, values: Array, top_k: int) -> list[tuple[ScoredLabel, ...]]:
        """Return the best labels of each row of the output `name`, with its values as scores.

        Raises:
            InvalidInputError: the output has no labels, or `top_k` is below 1.
        """
        if name != self.manifest.labels:
            raise InvalidInputError(name, f"it has no labels; outputs with labels: {self.manifest.labels or 'none'}")
        if top_k < 1:
            raise InvalidInputError(name, f"{top_k:,} labels are requested, must be at least 1")
        return [rank_labels(row, self.labels, top_k) for row in values.reshape(-1, len(self.labels))]

    def run(self, inputs: Tensors, outputs: Sequence[str] = ()) -> Mapping[str, Array]:
        """Run the model in this process and wait; returns the outputs by name.

        Arguments and errors as for `prepare`, but texts may have any type of numpy's for them.
        """
        work = self.prepare({name: as_objects(array) for name, array in inputs.items()}, outputs)
        run_rows(self.engine, work.items, work.field)
        return next(work.read())

    def describe(self) -> str:
        together = "requests share batches" if self.manifest.batches else "one request at a time"
        return f"{describe(self.capabilities)}, {self._encoder.takes}, {together}"


def _check_names(field: str, given: Any, known: Mapping[str, TensorSpec]) -> None:
    for index, name in enumerate(given):
        if name not in known:
            raise InvalidInputError(f"{field}[{index}].name", f"there is none {name!r:.60}; there are: {_listed(known)}")


def _check_tensor(name: str, array: Array, spec: TensorSpec) -> None:
    if array.dtype != np.dtype(NUMPY[spec.datatype]):
        raise InvalidInputError(name, f"its values are {array.dtype}, must be {spec.datatype}")
    fits = array.ndim == len(spec.shape) and all(own in (-1, size) for own, size in zip(spec.shape, array.shape, strict=True))
    if not fits or any(size == 0 and axis not in spec.empty for axis, size in enumerate(array.shape)):
        wanted = ", ".join("any" if size < 0 else str(size) for size in spec.shape)
        zero = f"; 0 only in dimensions {list(spec.empty)}" if spec.empty else ", with at least one value"
        raise InvalidInputError(name, f"shape {list(array.shape)[:8]} does not fit [{wanted}]{zero}")


def _size(array: Array) -> int:
    """Return the number of values; of texts, of their characters."""
    return sum(map(len, array.flat)) if array.dtype == object else array.size


def _listed(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f"{name} {spec.datatype} {list(spec.shape)}" for name, spec in specs.items())
