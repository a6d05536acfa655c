"""Serving's pixels are those of transformers' image processors, bit by bit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from numpy.typing import NDArray
from PIL import Image

from triptych_export.huggingface.checkpoint.image import read_image_processor
from triptych_export.huggingface.folder import Folder
from triptych_export.parity.image import generate_images
from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.images.decode import decode_image
from triptych_training.checkpoints.encoder import ImagePreprocessing

from .test_huggingface_images import as_png

Pixels = NDArray[np.uint8]
Maker = Callable[[], Any]
PROCESSORS: Mapping[str, Maker] = {
    "vit": transformers.ViTImageProcessorPil,
    "vit oblong": lambda: transformers.ViTImageProcessorPil(size={"height": 96, "width": 61}, resample=3),
    "deit": transformers.DeiTImageProcessorPil,
    "deit odd": lambda: transformers.DeiTImageProcessorPil(size={"height": 97, "width": 130}, crop_size=72),
    "clip": lambda: transformers.CLIPImageProcessorPil(size=112, crop_size={"height": 96, "width": 111}),
    "bit lanczos": lambda: transformers.BitImageProcessorPil(size={"shortest_edge": 75}, crop_size=64, resample=1),
    "convnext small": lambda: transformers.ConvNextImageProcessorPil(size=224, crop_pct=0.875),
    "convnext odd": lambda: transformers.ConvNextImageProcessorPil(size={"shortest_edge": 63}, crop_pct=0.9, resample=2),
    "convnext large": transformers.ConvNextImageProcessorPil,
    "beit": lambda: transformers.BeitImageProcessorPil(size=80, crop_size=64, do_center_crop=True),
    "siglip": lambda: transformers.SiglipImageProcessorPil(size={"height": 48, "width": 48}),
    "nearest": lambda: transformers.ViTImageProcessorPil(size=50, resample=0),
    "box": lambda: transformers.ViTImageProcessorPil(size=50, resample=4),
    "hamming": lambda: transformers.ViTImageProcessorPil(size=50, resample=5),
}
QUICK = ("vit", "deit", "deit odd", "clip", "convnext odd")
SIZES = ((331, 217), (64, 301), (40, 40), (9, 13))  # width and height


def ours(folder: Path, processor: Any) -> tuple[ImagePreprocessing, ImageSpec]:
    """Save a processor and return what export and serving read of it."""
    processor.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "vit"}')
    image = read_image_processor(Folder(folder))
    stretched = image.resize_height, image.resize_width
    return image, ImageSpec(image.height, image.width, image.resize, image.resize_size, image.interpolation, *stretched)


def theirs(processor: Any, picture: Image.Image, raw: bool = True) -> Any:
    """`[height, width, 3]`: bytes, or rescaled and normalised as the processor does it."""
    switches = {"do_rescale": False, "do_normalize": False} if raw else {}
    return np.moveaxis(np.asarray(processor(picture, **switches)["pixel_values"][0]), 0, -1)


@pytest.mark.parametrize("name", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.full) for each in PROCESSORS])
def test_generated_images_get_the_same_pixels(name: str, tmp_path: Path) -> None:
    processor = PROCESSORS[name]()
    image, spec = ours(tmp_path, processor)
    for width, height in SIZES:
        picture = Image.fromarray(generate_images(3, height, width)[1])
        pixels = decode_image(as_png(picture), spec).pixels
        np.testing.assert_array_equal(pixels, theirs(processor, picture))
        normal = (pixels / 255 - np.array(image.mean)) / np.array(image.std)
        np.testing.assert_allclose(normal, theirs(processor, picture, raw=False), rtol=1e-4, atol=1e-4)
