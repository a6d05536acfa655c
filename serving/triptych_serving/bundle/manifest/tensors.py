"""The manifest of a model of plain tensors: an ONNX graph whose inputs and outputs requests name themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.fields import JsonFields
from triptych_serving.bundle.manifest.base import Graph, Manifest, check_common, parse_common
from triptych_serving.bundle.manifest.image import LABELS_FILE, ImageSpec, parse_spec

TENSORS = "tensors"
BYTES = "BYTES"
# Datatypes of the Open Inference Protocol, as little-endian types of numpy; elements of BYTES are texts.
NUMPY: Mapping[str, str] = {
    "BOOL": "|b1",
    **{f"{sign}INT{8 * size}": f"<{kind}{size}" for size in (1, 2, 4, 8) for sign, kind in (("", "i"), ("U", "u"))},
    **{f"FP{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    BYTES: "|O",
}
DATATYPES = {np.dtype(code): name for name, code in NUMPY.items()}


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: a datatype of the Open Inference Protocol, and a shape in which -1 is any size."""

    datatype: str
    shape: tuple[int, ...]
    empty: tuple[int, ...] = ()  # dimensions of an input that may also be 0, such as the length of a cache


@dataclass(frozen=True)
class ImageInput:
    """Conversion of image files to an input: pixels of red, green and blue, (pixel / 255 - mean) / std."""

    input: str
    spec: ImageSpec
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class TensorsManifest(Manifest):
    """Manifest of a model of plain tensors. Members besides the common ones:

    inputs, outputs       name -> {datatype, shape}, and of inputs (optional) the dimensions that may be `empty`
    batches               the first dimension of all tensors numbers rows, which do not depend on each other
    image                 (optional) input, and the members of an image classification model's: files may be sent for this input
    labels                (optional) the output `[rows, labels]` whose columns labels.txt names
    """

    precisions: Mapping[str, Graph]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    batches: bool
    image: ImageInput | None = None
    labels: str = ""


def as_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of texts as one of str objects, as the runtime takes them; an array of numbers as it is.

    Raises:
        UnicodeDecodeError: bytes are not UTF-8.
    """
    texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
    return texts.astype(object) if texts.dtype.kind == "U" else array


def parse_tensors(fields: JsonFields) -> TensorsManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    manifest = TensorsManifest(
        **parse_common(fields),
        precisions=fields.records("precisions", Graph),
        inputs=_specs(fields, "inputs"),
        outputs=_specs(fields, "outputs"),
        batches=fields.get("batches", bool, False),
        image=_parse_image(fields.object("image")) if "image" in fields.values else None,
        labels=fields.get("labels", str, ""),
    )
    check_common(manifest, {LABELS_FILE} if manifest.labels else set(), fields.faults)
    if manifest.labels and manifest.labels not in manifest.outputs:
        fields.faults.append(f"labels is {manifest.labels!r:.40}, which is no output")
    if (image := manifest.image) is not None:
        found = manifest.inputs.get(image.input)
        if found is None or not found.datatype.startswith("FP") or len(found.shape) != 4:
            fields.faults.append(f"image.input is {image.input!r:.40}, which is no input of floats [rows, 3, height, width]")
        elif not fields.faults:
            fields.faults += _image_faults(image, found.shape)
    specs = (*manifest.inputs.values(), *manifest.outputs.values())
    if manifest.batches and any(spec.shape[:1] != (-1,) or 0 in spec.empty for spec in specs):
        fields.faults.append("batches is true, but a tensor's first dimension is not free")
    return manifest


def _parse_image(image: JsonFields) -> ImageInput:
    return ImageInput(image.get("input", str), parse_spec(image), image.numbers("mean", 3), image.numbers("std", 3))


def _image_faults(image: ImageInput, shape: tuple[int, ...]) -> list[str]:
    made = (3, image.spec.height, image.spec.width)
    faults = [f"image.std is {list(image.std)}, all of it must be above 0"] if min(image.std) <= 0 else []
    if any(size not in (-1, side) for size, side in zip(shape[1:], made, strict=True)):
        faults.append(f"image makes rows of {list(made)}, but the shape of {image.input!r:.40} is {list(shape)}")
    return faults


def _specs(fields: JsonFields, name: str) -> dict[str, TensorSpec]:
    specs = {}
    for key, spec in fields.objects(name).items():
        shape, empty = spec.values.get("shape"), spec.values.get("empty", [])
        if not isinstance(shape, list) or any(type(size) is not int or size < -1 for size in shape):
            fields.faults.append(f"{spec.path}.shape is {shape!r:.40}, expected sizes, -1 where any size will do")
            shape = []
        elif not isinstance(empty, list) or any(
            type(axis) is not int or axis < 0 or shape[axis : axis + 1] != [-1] for axis in empty
        ):
            fields.faults.append(f"{spec.path}.empty is {empty!r:.40}, expected numbers of dimensions, from 0, of any size")
            empty = []
        specs[key] = TensorSpec(spec.choice("datatype", tuple(NUMPY), ""), tuple(shape), tuple(empty))
    if not specs:
        fields.faults.append(f"{name} is empty")
    return specs
