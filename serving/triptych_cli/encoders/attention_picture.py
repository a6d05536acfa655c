"""A picture of attention: the alignment of a translation, the heads of an encoder, or the rollout over an image."""

import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from triptych_cli.common.options import write_file
from triptych_cli.encoders.attend import main_view

CELL, MARGIN, GAP = 28, 12, 6  # pixels
HEAD_SIDE = 120  # pixels of one head's picture
FONTS, FONT_SIZE = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "arial.ttf"), 16
INK, WARM = (29, 33, 38), (31, 95, 191)
SHADE = 0.85  # of the patch with the least attention

Floats = NDArray[np.float32]


def write_picture(path: Path, data: dict[str, Any], image: bytes) -> None:
    """Write the picture as PNG."""
    if image:
        made = over_image(data, image)
    elif "cross" in data:
        made = heat_map(*main_view(data))
    else:
        made = all_heads(np.asarray(data["encoder"], np.float32))
    made.save(content := io.BytesIO(), "PNG")
    write_file(path, content.getvalue())


def heat_map(rows: Sequence[Sequence[float]], targets: Sequence[str], sources: Sequence[str]) -> Image.Image:
    """Draw a matrix with its tokens: targets beside it, sources above, from bottom to top."""
    beside, above = _labels(targets, "rm"), _labels(sources, "lm").rotate(90, expand=True)
    matrix = _shades(np.asarray(rows, np.float32)).resize((above.width, beside.height), Image.Resampling.NEAREST)
    picture = Image.new("RGB", (beside.width + above.width + MARGIN, above.height + beside.height + MARGIN), "white")
    for part, corner in ((beside, (0, above.height)), (above, (beside.width, 0)), (matrix, (beside.width, above.height))):
        picture.paste(part, corner)
    return picture


def all_heads(weights: Floats) -> Image.Image:
    """Draw every head, `[layers, heads, targets, sources]`, a row for each layer."""
    layers, heads = weights.shape[:2]
    step = HEAD_SIDE + GAP
    picture = Image.new("RGB", (heads * step + GAP, layers * step + GAP), (213, 217, 222))
    for layer, head in np.ndindex(layers, heads):
        small = _shades(weights[layer, head]).resize((HEAD_SIDE, HEAD_SIDE), Image.Resampling.NEAREST)
        picture.paste(small, (GAP + head * step, GAP + layer * step))
    return picture


def rollout(weights: Floats) -> Floats:
    """Multiply the mean attention of all layers, each averaged with the identity (Abnar and Zuidema 2020)."""
    product: Floats = np.eye(weights.shape[-1], dtype=np.float32)
    for layer in weights.mean(1):
        product = (layer + np.eye(len(layer), dtype=np.float32)) / 2 @ product
    return product


def over_image(data: dict[str, Any], image: bytes) -> Image.Image:
    """Darken the image where the rollout from the class token to the patches is small."""
    with Image.open(io.BytesIO(image)) as file:
        photo = ImageOps.exif_transpose(file).convert("RGB")
    rows, columns = data["patch_rows"], data["patch_columns"]
    patches = rollout(np.asarray(data["encoder"], np.float32))[0, -rows * columns :].reshape(rows, columns)
    unseen = (patches.max() - patches) / max(float(np.ptp(patches)), 1e-9)
    mask = Image.fromarray((255 * SHADE * unseen).astype(np.uint8))
    size = round(photo.width * data["crop_width"]), round(photo.height * data["crop_height"])
    corner = (photo.width - size[0]) // 2, (photo.height - size[1]) // 2
    photo.paste("black", (*corner, corner[0] + size[0], corner[1] + size[1]), mask.resize(size, Image.Resampling.NEAREST))
    return photo


def _labels(tokens: Sequence[str], anchor: str) -> Image.Image:
    """Draw tokens one below the other, each as high as a cell; `anchor` is "lm" for the left side, "rm" for the right side."""
    font = _font()
    picture = Image.new("RGB", (2 * MARGIN + round(max(map(font.getlength, tokens))), CELL * len(tokens)), "white")
    draw, x = ImageDraw.Draw(picture), MARGIN if anchor == "lm" else picture.width - MARGIN
    for index, token in enumerate(tokens):
        draw.text((x, CELL * index + CELL // 2), token, INK, font, anchor)
    return picture


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return a font of this machine, or Pillow's own, which has no letters with accents."""
    for name in FONTS:
        with suppress(OSError):
            return ImageFont.truetype(name, FONT_SIZE)
    return ImageFont.load_default(FONT_SIZE)


def _shades(matrix: Floats) -> Image.Image:
    """Colour a matrix from white to its largest value."""
    shares = (matrix / max(float(matrix.max()), 1e-9))[..., None]
    return Image.fromarray((255 - shares * (255 - np.array(WARM, np.float32))).astype(np.uint8))
