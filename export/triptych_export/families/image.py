"""Export of image classifiers."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triptych_export.bundle_files import (
    HALF_PRECISION,
    PRECISIONS,
    encoder_precisions,
    open_encoder,
    write_encoder,
    write_manifest,
)
from triptych_export.card import Description
from triptych_export.errors import SourceError
from triptych_export.families.family import Report, Say
from triptych_export.graphs.image import half_image_graph, image_graph
from triptych_export.graphs.tracing import trace_half_image, trace_image
from triptych_export.parity.comparison import report_answers
from triptych_export.parity.generated_images import Pixels, generate_images
from triptych_export.parity.image import answer_images_in_session, answer_images_in_torch
from triptych_export.quantization.float16_ranges import within_half
from triptych_export.samples import spread
from triptych_serving.bundle.manifest import FORMAT, IMAGE_CLASSIFICATION
from triptych_serving.bundle.manifest.image import LABELS_FILE, ImageSpec
from triptych_serving.errors import InvalidInputError
from triptych_serving.images.decode import decode_image
from triptych_training.checkpoints.encoder import ImageCheckpoint, load_vit_checkpoint
from triptych_training.models.swin import SwinConfig
from triptych_training.models.vit import VitConfig

PARITY_IMAGES = 300
GENERATED_IMAGES = 40  # where there are no others


def open_image_family(folder: Path, valid: Sequence[str] = (), extras: Sequence[str] = ()) -> "ImageFamily":
    """Open a checkpoint folder of triptych_training.

    Args:
        folder: the checkpoint.
        valid: image files for parity; empty: the sample in the folder.
        extras: precisions to write beside the usual ones.

    Raises:
        SourceError: there are no images or they cannot be read, or the preprocessing does not fit the model.
        TrainingError: the checkpoint cannot be read.
    """
    checkpoint = load_vit_checkpoint(folder)
    if not valid and not checkpoint.samples:
        raise SourceError(f"{folder}: holds no images for the parity check; name image files with --valid")
    return ImageFamily(checkpoint, valid, extras)


class ImageFamily:
    """A ViT, DeiT or Swin classifier.

    Args:
        checkpoint: the model with all that belongs to it.
        images: image files for parity; empty: the checkpoint's samples, or generated images where it has none.
        extras: precisions to write beside the usual ones.

    Raises:
        SourceError: images cannot be read, or the preprocessing does not fit the model.
    """

    def __init__(self, checkpoint: ImageCheckpoint, images: Sequence[str] = (), extras: Sequence[str] = ()) -> None:
        self.checkpoint = checkpoint
        self.extras = extras
        self.spec = _spec(checkpoint)
        files = {path: _read(path) for path in images} or {f"sample {i}": d for i, d in enumerate(checkpoint.samples)}
        chosen = spread(list(files.items()), PARITY_IMAGES)
        self.images = [_decode(name, data, self.spec) for name, data in chosen]
        if not files:
            self.images = generate_images(GENERATED_IMAGES, self.spec.height, self.spec.width)

    @property
    def default_name(self) -> str:
        return IMAGE_CLASSIFICATION

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.checkpoint.provenance

    def describe(self) -> Description:
        config = self.checkpoint.model.config
        rows = {
            **_describe(config),
            "image, patch (pixels)": f"{_sides(config.image)}, {_sides(config.patch)}",
            "classes": config.classes,
        }
        return Description("Labels images.", rows)

    def write(self, folder: Path, say: Say) -> None:
        write_image(self.checkpoint, folder, say, self.extras)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        model, image = self.checkpoint.model, self.checkpoint.image
        classes = model.config.classes
        say("answering in PyTorch")
        with within_half(model) if HALF_PRECISION in self.extras else nullcontext():
            expected = [answer_images_in_torch(model, pixels, image.mean, image.std) for pixels in self.images]
        say("comparing the bundle with PyTorch")
        sessions = {precision: open_encoder(folder, precision) for precision in (*PRECISIONS, *self.extras)}
        parity = report_answers(
            expected,
            lambda precision, size: answer_images_in_session(sessions[precision], self.images, size, classes),
            self.extras,
        )
        return parity, dict(self.provenance.get("metrics", {}))


def write_image(checkpoint: ImageCheckpoint, folder: Path, say: Say, extras: Sequence[str] = ()) -> None:
    """Write the graph in every precision, the labels and a first manifest."""
    folder.mkdir()
    say("tracing the graph")
    image = checkpoint.image
    arguments = checkpoint.model, image.mean, image.std
    half = trace_half_image(half_image_graph(*arguments)) if HALF_PRECISION in extras else None
    write_encoder(trace_image(image_graph(*arguments)), folder, half)
    (folder / LABELS_FILE).write_text("".join(f"{_line(label)}\n" for label in checkpoint.labels), encoding="utf-8")
    write_manifest(folder, image_manifest(checkpoint, extras))


def image_manifest(checkpoint: ImageCheckpoint, extras: Sequence[str] = ()) -> dict[str, Any]:
    """Compose the manifest from the checkpoint."""
    image = asdict(checkpoint.image)
    return {
        "format": FORMAT,
        "task": IMAGE_CLASSIFICATION,
        "family": checkpoint.family,
        "label_count": len(checkpoint.labels),
        "image": {**image, "mean": list(checkpoint.image.mean), "std": list(checkpoint.image.std)},
        "precisions": encoder_precisions(extras),
        "default_precision": "fp32",
        "provenance": {},
        "metrics": {},
        "parity": {},
    }


def _describe(config: VitConfig | SwinConfig) -> dict[str, Any]:
    if isinstance(config, VitConfig):
        return {"layers, heads, width": f"{config.layers}, {config.heads}, {config.model_dim}"}
    stages = range(len(config.depths))
    columns = (config.depths, config.heads, [config.width(stage) for stage in stages])
    values = ["-".join(map(str, column)) for column in columns]
    return {"layers, heads, width of the stages": ", ".join(values), "window (patches)": config.window_size}


def _sides(size: tuple[int, int]) -> str:
    """Format a size as width x height, or as one number if it is square."""
    return str(size[0]) if size[0] == size[1] else f"{size[1]} x {size[0]}"


def _spec(checkpoint: ImageCheckpoint) -> ImageSpec:
    image, (height, width) = checkpoint.image, checkpoint.model.config.image
    stretched = image.resize_height, image.resize_width
    try:
        spec = ImageSpec(image.height, image.width, image.resize, image.resize_size, image.interpolation, *stretched)
    except ValueError as error:
        raise SourceError(f"image: {'; '.join(map(str, error.args))}") from error
    if (spec.height, spec.width) != (height, width):
        raise SourceError(f"image: {spec.width} x {spec.height} pixels, the model takes {width} x {height}")
    if checkpoint.model.config.channels != 3:
        raise SourceError(f"channels: {checkpoint.model.config.channels}; bundles take images with 3, red, green and blue")
    return spec


def _decode(name: str, data: bytes, spec: ImageSpec) -> Pixels:
    try:
        return decode_image(data, spec, name).pixels
    except InvalidInputError as error:
        raise SourceError(f"{name}: {error}") from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error


def _line(label: str) -> str:
    """Join a label to one line."""
    return " ".join(label.split())
