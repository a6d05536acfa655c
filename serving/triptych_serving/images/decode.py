"""Decoding of image files to the pixels that a graph takes.

    decode (a large JPEG at 1/2, 1/4 or 1/8) -> turn upright -> RGB -> resize -> centre crop

The result is bit-identical to Pillow's `resize` of the whole image, as in Hugging Face's image processors. One exception: a
JPEG at least four times as large as needed is decoded by libjpeg at a fraction of its size, with a fraction of the time and
memory, which changes a value by 0.6 of 255 on average. Pillow releases the GIL while it decodes and resizes: call this from a
pool of threads."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import Base as Exif
from PIL.Image import Resampling, Transpose
from PIL.ImageFile import ImageFile

from triptych_serving.bundle.manifest.image import STRETCH, ImageSpec
from triptych_serving.errors import InvalidInputError
from triptych_serving.images.image_file import MAX_PIXELS, damage_refused, open_image

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]

# The shorter side of a long, narrow image may be made much longer, and the cost of that is bounded, too: by this many times the
# square of the shorter side, which is an aspect ratio, but at least by so many pixels, which take 0.06 s.
_MAX_ASPECT, _MAX_NARROW_PIXELS = 100, 4_000_000

_RESAMPLING = {member.name.lower(): member for member in Resampling}
_TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
_SIDEWAYS = {Transpose.TRANSPOSE, Transpose.ROTATE_270, Transpose.TRANSVERSE, Transpose.ROTATE_90}
# A reduced JPEG keeps at least so many pixels for each of the result: mean differences to the whole image were 2.2 of 255 at 1,
# 0.6 at 2 and 0.25 at 4. These filters alone: a smaller image is another one to "nearest", and "box" differs by 2.7 at 2.
_REDUCED_MARGIN = 2
_REDUCIBLE = {"bilinear", "hamming", "bicubic", "lanczos"}


@dataclass(frozen=True)
class Decoded:
    """A decoded image: RGB pixels, uint8 [height, width, 3], C-contiguous, and the size of the upright file."""

    pixels: NDArray[np.uint8]
    width: int
    height: int


def decode_image(data: bytes, spec: ImageSpec, field: str = "images[0]") -> Decoded:
    """Decode, turn upright as EXIF says, convert to RGB (see `to_rgb`), resize and crop. Of an animation, the first frame.

    Raises:
        InvalidInputError: as for `decode_resized`.
    """
    image, size = decode_resized(data, lambda size: resized(size, spec), spec.interpolation, field)
    return Decoded(np.array(_centre(image, spec)), *size)


def decode_resized(data: bytes, resize: Callable[[Size], Size], interpolation: str, field: str) -> tuple[Image.Image, Size]:
    """Decode an image in RGB, resized to the size that `resize` returns for its upright one; return the latter, too.

    Raises:
        InvalidInputError: the file is not a JPEG, PNG or WebP image, damaged, truncated or too large; names `field`.
    """
    image = open_image(data, field)
    with damage_refused(image.format, field):
        if image.format != "JPEG":
            image.load()  # the orientation may follow the pixels
        turn = _turn(image)
        upright = _swapped(image.size) if turn in _SIDEWAYS else image.size
        size = resize(upright)
        limit = min(MAX_PIXELS, max(_MAX_NARROW_PIXELS, _MAX_ASPECT * min(size) ** 2))
        if size[0] * size[1] > limit:
            raise InvalidInputError(
                field,
                f"the image is {upright[0]} x {upright[1]}, too narrow: resized to {size[0]} x {size[1]} it has "
                f"{size[0] * size[1]} pixels, the limit is {limit} pixels",
            )
        box = _reduce(image, _swapped(size) if turn in _SIDEWAYS else size, interpolation)
        image.load()
        rgb = to_rgb(image)
    return _fit(rgb, turn, size, box, _RESAMPLING[interpolation]), upright


def _swapped(size: Size) -> Size:
    return size[1], size[0]


def _turn(image: ImageFile) -> Transpose | None:
    """Return the transposition that turns the image upright; unreadable EXIF is ignored."""
    try:
        return _TURNS.get(image.getexif().get(Exif.Orientation, 1))
    except Exception:
        return None


def resized(size: Size, spec: ImageSpec) -> Size:
    """Return the size before the crop; the longer side is rounded down, as in Hugging Face and torchvision."""
    if spec.resize == STRETCH:
        height, width = spec.stretched
        return width, height
    width, height = size
    if width <= height:
        return spec.resize_size, int(spec.resize_size * height / width)
    return int(spec.resize_size * width / height), spec.resize_size


def _reduce(image: ImageFile, size: Size, interpolation: str) -> Box | None:
    """Let libjpeg decode a large JPEG at a reduced size, at least `size` (before turning).

    Returns the part of the reduced image that is the picture, as its sides are rounded up; None if it is not reduced.
    """
    if interpolation not in _REDUCIBLE:
        return None
    whole = image.size
    drafted = image.draft(None, (size[0] * _REDUCED_MARGIN, size[1] * _REDUCED_MARGIN))
    return drafted[1] if drafted and image.size != whole else None


def _fit(image: Image.Image, turn: Transpose | None, size: Size, box: Box | None, resampling: Resampling) -> Image.Image:
    """Turn and resize. The turn comes first if the result must be exact: Pillow rounds between rows and columns."""
    if turn is None:
        return image.resize(size, resampling, box)
    if box is None:
        return image.transpose(turn).resize(size, resampling)
    return image.resize(_swapped(size) if turn in _SIDEWAYS else size, resampling, box).transpose(turn)


def _centre(image: Image.Image, spec: ImageSpec) -> Image.Image:
    """Crop the middle height x width; an odd pixel is left over at the right and bottom, as in Hugging Face.

    `round_crop` is torchvision's CenterCrop, which rounds half a pixel as Python does.
    """
    whole = round if spec.round_crop else int
    left, top = whole((image.width - spec.width) / 2), whole((image.height - spec.height) / 2)
    return image.crop((left, top, left + spec.width, top + spec.height))


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert a loaded image to RGB like `Image.convert("RGB")`, except 16-bit greyscale.

    - Alpha and transparent colours are dropped, not blended with a background: Hugging Face's pipelines, torchvision's
      ImageFolder and timm all call `convert("RGB")`, so models were trained on that. (An image processor of transformers 5 that
      gets an image with alpha blends it with white, if `do_convert_rgb` is set.)
    - CMYK, which Pillow reads as Adobe writes it (inverted), is converted without the colour profile.
    - 16-bit greyscale keeps its high byte, as Pillow does for 16-bit colour; `convert` would make all values above 255
      white.
    """
    # Converting would warn about dropping a transparent colour.
    image.info.pop("transparency", None)
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")
