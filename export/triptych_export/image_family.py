"""ViT checkpoints as image classification bundles."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triptych_export.answers import report_answers
from triptych_export.bundle_files import PRECISIONS, encoder_precisions, open_encoder, write_encoder, write_manifest
from triptych_export.card import Description
from triptych_export.errors import SourceError
from triptych_export.family import Report, Say
from triptych_export.image_graphs import ImageGraph
from triptych_export.parity_image import Pixels, answer_images_in_session, answer_images_in_torch
from triptych_export.samples import spread
from triptych_export.tracing import trace_image
from triptych_serving.errors import InvalidInputError
from triptych_serving.images import decode_image
from triptych_serving.imagespec import ImageSpec
from triptych_serving.manifest import FORMAT, IMAGE_CLASSIFICATION
from triptych_serving.manifest.image import LABELS_FILE
from triptych_training.encoder_checkpoint import VIT, VitCheckpoint, load_vit_checkpoint

PARITY_IMAGES = 300


class ImageFamily:
    """A ViT checkpoint.

    Args:
        folder: what a training wrote.
        valid: image files for parity; empty: the sample in the folder.

    Raises:
        SourceError: there are no images or they cannot be read, or the preprocessing does not fit the model.
        TrainingError: the checkpoint cannot be read.
    """

    def __init__(self, folder: Path, valid: Sequence[str] = ()) -> None:
        self.checkpoint = load_vit_checkpoint(folder)
        self.spec = _spec(self.checkpoint)
        samples = {path: _read(path) for path in valid} or {f"sample {i}": d for i, d in enumerate(self.checkpoint.samples)}
        if not samples:
            raise SourceError(f"{folder}: holds no images for the parity check; name image files with --valid")
        chosen = spread(list(samples.items()), PARITY_IMAGES)
        self.images = [_decode(name, data, self.spec) for name, data in chosen]

    @property
    def default_name(self) -> str:
        return IMAGE_CLASSIFICATION

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.checkpoint.provenance

    def describe(self) -> Description:
        config = self.checkpoint.model.config
        rows = {
            "layers, heads, width": f"{config.layers}, {config.heads}, {config.model_dim}",
            "image, patch (pixels)": f"{config.image_size}, {config.patch_size}",
            "classes": config.classes,
        }
        return Description("Labels images.", rows)

    def write(self, folder: Path, say: Say) -> None:
        write_image(self.checkpoint, folder, say)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        model, image = self.checkpoint.model, self.checkpoint.image
        classes = model.config.classes
        say("answering in PyTorch")
        expected = [answer_images_in_torch(model, pixels, image.mean, image.std) for pixels in self.images]
        say("comparing the bundle with PyTorch")
        sessions = {precision: open_encoder(folder, precision) for precision in PRECISIONS}
        parity = report_answers(
            expected,
            lambda precision, size: answer_images_in_session(sessions[precision], self.images, size, classes),
        )
        return parity, dict(self.provenance.get("metrics", {}))


def write_image(checkpoint: VitCheckpoint, folder: Path, say: Say) -> None:
    """The graph in every precision, the labels and a first manifest."""
    folder.mkdir()
    say("tracing the graph")
    image = checkpoint.image
    write_encoder(trace_image(ImageGraph(checkpoint.model, image.mean, image.std)), folder)
    (folder / LABELS_FILE).write_text("".join(f"{_line(label)}\n" for label in checkpoint.labels), encoding="utf-8")
    write_manifest(folder, image_manifest(checkpoint))


def image_manifest(checkpoint: VitCheckpoint) -> dict[str, Any]:
    """All that the checkpoint says."""
    image = asdict(checkpoint.image)
    return {
        "format": FORMAT,
        "task": IMAGE_CLASSIFICATION,
        "family": VIT,
        "label_count": len(checkpoint.labels),
        "image": {**image, "mean": list(checkpoint.image.mean), "std": list(checkpoint.image.std)},
        "precisions": encoder_precisions(),
        "default_precision": "fp32",
        "provenance": {},
        "metrics": {},
        "parity": {},
    }


def _spec(checkpoint: VitCheckpoint) -> ImageSpec:
    image, size = checkpoint.image, checkpoint.model.config.image_size
    try:
        spec = ImageSpec(image.height, image.width, image.resize, image.resize_size, image.interpolation)
    except ValueError as error:
        raise SourceError(f"image: {'; '.join(map(str, error.args))}") from error
    if (spec.height, spec.width) != (size, size):
        raise SourceError(f"image: {spec.width} x {spec.height} pixels, the model takes {size} x {size}")
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
    """A label on one line."""
    return " ".join(label.split())
