"""The manifest of a model that labels images: the ViT family."""

from collections.abc import Mapping
from dataclasses import dataclass

from triptych_serving.bundle.fields import Fields
from triptych_serving.bundle.image_spec import ImageSpec
from triptych_serving.bundle.manifest.base import Graph, Manifest, check_common, parse_common, parse_graphs

IMAGE_CLASSIFICATION = "image-classification"
LABELS_FILE = "labels.txt"


@dataclass(frozen=True)
class ImageManifest(Manifest):
    """Beside the common members:

    label_count           classes; their names are the lines of labels.txt (UTF-8), in the graph's order
    image                 how a file becomes the graph's input: height, width (pixels), resize ("stretch" or "shortest-edge",
                          then a centre crop), resize_size (pixels of the shortest edge), resize_height, resize_width (optional;
                          what is stretched to, height and width where they are missing or 0), interpolation, and for other
                          runtimes mean, std (of red, green and blue between 0 and 1; this graph normalises by itself)
    """

    precisions: Mapping[str, Graph]
    label_count: int
    image: ImageSpec
    mean: tuple[float, ...]
    std: tuple[float, ...]


def parse_image(fields: Fields, faults: list[str]) -> ImageManifest:
    """Read and check it; what is wrong goes to `faults`."""
    image = fields.object("image")
    manifest = ImageManifest(
        **parse_common(fields),
        precisions=parse_graphs(fields),
        label_count=fields.positive("label_count"),
        image=_parse_spec(image, faults),
        mean=image.numbers("mean", 3),
        std=image.numbers("std", 3),
    )
    check_common(manifest, {LABELS_FILE}, faults)
    return manifest


def _parse_spec(image: Fields, faults: list[str]) -> ImageSpec:
    known = len(faults)
    height, width, resize = image.get("height", int), image.get("width", int), image.get("resize", str)
    size = image.get("resize_size", int, 0)
    interpolation = image.get("interpolation", str)
    stretched = image.get("resize_height", int, 0), image.get("resize_width", int, 0)
    if len(faults) == known:
        try:
            return ImageSpec(height, width, resize, size, interpolation, *stretched)
        except ValueError as error:
            faults.extend(f"image.{fault}" for fault in error.args)
    return ImageSpec(1, 1)
