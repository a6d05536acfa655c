"""The manifests of models that label images (the ViT family), and of autoencoders, which generate them.

Imports no Pillow, which readers need not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from triptych_serving.bundle.fields import JsonFields
from triptych_serving.bundle.manifest.base import Graph, Manifest, check_common, parse_common

STRETCH = "stretch"
SHORTEST_EDGE = "shortest-edge"
RESIZES = (STRETCH, SHORTEST_EDGE)
INTERPOLATIONS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")

MAX_TARGET = 4096  # pixels of a side


@dataclass(frozen=True)
class ImageSpec:
    """Preprocessing of images; the member `image` of an image bundle's manifest.

    "stretch" resizes to resize_width x resize_height and ignores the aspect ratio, as ViT's processor of Hugging Face does, and
    DeiT's; "shortest-edge" resizes the shorter side to `resize_size`, as CLIP's does. Height x width are then cut out of the
    middle. If an odd number of pixels is left over, the smaller part is at the top and left; with `round_crop` the part there
    is the even one, as in torchvision.

    Raises:
        ValueError: a member is out of range; `args` are all faults, one string each.
    """

    height: int  # pixels
    width: int  # pixels
    resize: str = STRETCH
    resize_size: int = 0  # pixels of the shorter side; ignored for "stretch"
    interpolation: str = "bilinear"
    resize_height: int = 0  # pixels; ignored for "shortest-edge"; 0: height, nothing is cut off
    resize_width: int = 0  # likewise
    round_crop: bool = False

    def __post_init__(self) -> None:
        if faults := self._faults():
            raise ValueError(*faults)

    @property
    def stretched(self) -> tuple[int, int]:
        """Height and width before the crop of "stretch"."""
        return self.resize_height or self.height, self.resize_width or self.width

    def _faults(self) -> list[str]:
        sides = {"height": self.height, "width": self.width}
        if self.resize == SHORTEST_EDGE:
            sides["resize_size"] = self.resize_size
        if self.resize == STRETCH:
            given = {"resize_height": self.resize_height, "resize_width": self.resize_width}
            sides |= {name: side for name, side in given.items() if side}
        faults = [
            f"{name} is {side}, it must be between 1 and {MAX_TARGET} pixels"
            for name, side in sides.items()
            if not 1 <= side <= MAX_TARGET
        ]
        if self.resize not in RESIZES:
            faults.append(f"resize is {self.resize!r}, it must be one of {', '.join(RESIZES)}")
        if self.interpolation not in INTERPOLATIONS:
            faults.append(f"interpolation is {self.interpolation!r}, it must be one of {', '.join(INTERPOLATIONS)}")
        crop = max(self.height, self.width)
        if not faults and self.resize == SHORTEST_EDGE and self.resize_size < crop:
            faults.append(f"resize_size is {self.resize_size}, it must be {crop} or more, the longer side of the crop")
        if not faults and self.resize == STRETCH:
            faults += [
                f"resize_{name} is {stretched}, it must be {cut} or more, the {name} of the crop"
                for name, stretched, cut in zip(("height", "width"), self.stretched, (self.height, self.width), strict=True)
                if stretched < cut
            ]
        return faults


IMAGE_CLASSIFICATION = "image-classification"
IMAGE_SAMPLING = "unconditional-image-generation"
LABELS_FILE = "labels.txt"


@dataclass(frozen=True)
class ImageManifest(Manifest):
    """Manifest of an image classification model. Members besides the common ones:

    label_count           classes; their names are the lines of labels.txt (UTF-8), in the graph's order
    image                 how a file becomes the graph's input: height, width (pixels), resize ("stretch" or "shortest-edge",
                          then a centre crop), resize_size (pixels of the shortest edge), resize_height, resize_width (optional;
                          what is stretched to, height and width where they are missing or 0), interpolation, round_crop
                          (optional; see ImageSpec), and for other runtimes mean, std (of red, green and blue between 0 and 1;
                          this graph normalises by itself)
    """

    precisions: Mapping[str, Graph]
    label_count: int
    image: ImageSpec
    mean: tuple[float, ...]
    std: tuple[float, ...]


def parse_image(fields: JsonFields) -> ImageManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    image = fields.object("image")
    manifest = ImageManifest(
        **parse_common(fields),
        precisions=fields.records("precisions", Graph),
        label_count=fields.positive("label_count"),
        image=parse_spec(image),
        mean=image.numbers("mean", 3),
        std=image.numbers("std", 3),
    )
    check_common(manifest, {LABELS_FILE}, fields.faults)
    return manifest


PIXELS, LATENTS, LOG_VARIANCES, LOG_SCALES = "pixels", "latents", "log_variances", "log_scales"


@dataclass(frozen=True)
class AutoencoderGraphs:
    """One precision of an autoencoder: file names."""

    encode: str  # PIXELS to LATENTS and LOG_VARIANCES, the parameters of q(z|x)
    decode: str  # LATENTS to PIXELS, the means of p(x|z) from 0 to 1, and LOG_SCALES

    @property
    def files(self) -> tuple[str, ...]:
        return (self.encode, self.decode)


@dataclass(frozen=True)
class AutoencoderManifest(Manifest):
    """Manifest of a variational autoencoder, which generates images of random latents. Members besides the common ones:

    image                 as of an image classification model, without mean and std
    latents               numbers that stand for an image
    """

    precisions: Mapping[str, AutoencoderGraphs]
    image: ImageSpec
    latents: int


def parse_autoencoder(fields: JsonFields) -> AutoencoderManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    manifest = AutoencoderManifest(
        **parse_common(fields),
        precisions=fields.records("precisions", AutoencoderGraphs),
        image=parse_spec(fields.object("image")),
        latents=fields.positive("latents"),
    )
    check_common(manifest, set(), fields.faults)
    return manifest


def parse_spec(image: JsonFields) -> ImageSpec:
    known = len(image.faults)
    height, width, resize = image.get("height", int), image.get("width", int), image.get("resize", str)
    size = image.get("resize_size", int, 0)
    interpolation = image.get("interpolation", str)
    others = image.get("resize_height", int, 0), image.get("resize_width", int, 0), image.get("round_crop", bool, False)
    if len(image.faults) == known:
        try:
            return ImageSpec(height, width, resize, size, interpolation, *others)
        except ValueError as error:
            image.faults.extend(f"image.{fault}" for fault in error.args)
    return ImageSpec(1, 1)
