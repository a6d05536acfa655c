"""Export of image classifiers."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from triptych_export.bundle_files import (
    PRECISIONS,
    encoder_precisions,
    first_manifest,
    write_encoder,
    write_labels,
    write_manifest,
    written_precisions,
)
from triptych_export.card import Description
from triptych_export.errors import SourceError
from triptych_export.families.family import EncoderFamily, Say
from triptych_export.graphs.tracing import trace_image
from triptych_export.parity.comparison import Outputs, spread
from triptych_export.parity.image import Pixels, answer_images_in_session, answer_images_in_torch, generate_images
from triptych_serving.bundle.manifest import IMAGE_CLASSIFICATION
from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.errors import InvalidInputError
from triptych_serving.images.decode import decode_image
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import ImageCheckpoint, ImageConfig, ImagePreprocessing
from triptych_training.models.image_gpt import ImageGptConfig
from triptych_training.models.resnet import ResNetConfig
from triptych_training.models.swin import SwinConfig
from triptych_training.models.vit import Vit, VitConfig

PARITY_IMAGES = 300
GENERATED_IMAGES = 40  # without image files


class ImageFamily(EncoderFamily):
    """A ViT, DeiT, Swin, PVT, ResNet or ImageGPT classifier; `shipped` are the precisions that the bundle will have.

    `images` are files for parity; without them those of the checkpoint are taken, or generated ones if it has none.

    Raises:
        SourceError: images cannot be read, or the preprocessing does not fit the model.
    """

    default_name = IMAGE_CLASSIFICATION

    def __init__(self, checkpoint: ImageCheckpoint, images: Sequence[str] = (), shipped: Sequence[str] = PRECISIONS) -> None:
        super().__init__(checkpoint.model, checkpoint.provenance, written_precisions(shipped))
        self.checkpoint = checkpoint
        self.spec = _spec(checkpoint)
        files = {path: _read(path) for path in images} or {f"sample {i}": d for i, d in enumerate(checkpoint.samples)}
        chosen = spread(list(files.items()), PARITY_IMAGES)
        self.images = [_decode(name, data, self.spec) for name, data in chosen]
        if not files:
            self.images = generate_images(GENERATED_IMAGES, self.spec.height, self.spec.width)

    def describe(self) -> Description:
        config = self.checkpoint.model.config
        rows = {
            **_describe(config),
            "image, patch (pixels)": f"{_sides(config.image)}, {_sides(config.patch)}",
            "classes": config.classes,
        }
        return Description("Labels images.", rows)

    def write(self, folder: Path, say: Say) -> None:
        """Write the graph in every precision, the labels and a first manifest; see Family."""
        model, labels, image = self.checkpoint.model, self.checkpoint.labels, self.checkpoint.image
        attends = isinstance(model, Vit)  # the attention of each head can be written only of ViT and DeiT
        folder.mkdir()
        say("tracing the graph")
        write_encoder(folder, self.precisions, lambda half: trace_image(model, image.mean, image.std, half), attends)
        write_labels(folder, labels)
        precisions = encoder_precisions(self.precisions, attends)
        members = {"label_count": len(labels), "image": asdict(image)}
        write_manifest(folder, first_manifest(IMAGE_CLASSIFICATION, self.checkpoint.family, precisions, **members))

    def _expected(self) -> list[Outputs]:
        model, image = self.checkpoint.model, self.checkpoint.image
        return [answer_images_in_torch(model, pixels, image.mean, image.std) for pixels in self.images]

    def _run(self, session: Session, size: int) -> list[Outputs]:
        return answer_images_in_session(session, self.images, size, self.checkpoint.model.config.classes)


def _describe(config: ImageConfig | ImageGptConfig) -> dict[str, Any]:
    if isinstance(config, ImageGptConfig):
        shape = config.gpt
        return {"layers, heads, width": f"{shape.layers}, {shape.heads}, {shape.model_dim}", "colours": config.colours}
    if isinstance(config, VitConfig):
        return {"layers, heads, width": f"{config.layers}, {config.heads}, {config.model_dim}"}
    if isinstance(config, ResNetConfig):
        stages = ("-".join(map(str, column)) for column in (config.depths, config.widths))
        return {"blocks, width of the stages": ", ".join(stages)}
    columns = (config.depths, config.heads, [config.block(stage, 0).model_dim for stage in range(len(config.depths))])
    values = ["-".join(map(str, column)) for column in columns]
    more = {"window (patches)": config.window_size} if isinstance(config, SwinConfig) else {"version": config.version}
    return {"layers, heads, width of the stages": ", ".join(values), **more}


def _sides(size: tuple[int, int]) -> str:
    """Format a size as width x height, or as one number if it is square."""
    return str(size[0]) if size[0] == size[1] else f"{size[1]} x {size[0]}"


def image_spec(image: ImagePreprocessing) -> ImageSpec:
    """Convert preprocessing to serving's form; raises SourceError if a member is out of range."""
    others = image.resize_height, image.resize_width, image.round_crop
    try:
        return ImageSpec(image.height, image.width, image.resize, image.resize_size, image.interpolation, *others)
    except ValueError as error:
        raise SourceError(f"image: {'; '.join(map(str, error.args))}") from error


def read_image(path: str, spec: ImageSpec) -> Pixels:
    """Read and decode an image file; raises SourceError if it cannot be read, or is no image."""
    return _decode(path, _read(path), spec)


def _spec(checkpoint: ImageCheckpoint) -> ImageSpec:
    spec, (height, width) = image_spec(checkpoint.image), checkpoint.model.config.image
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
