"""Any mode that a JPEG, PNG or WebP file may have, to 8-bit RGB."""

import numpy as np
from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """The loaded `image` in mode RGB, as `Image.convert("RGB")` gives it, but for 16-bit greyscale.

    - Alpha and transparent colours are dropped, not laid over a background: Hugging Face's image processors, torchvision's
      ImageFolder and timm all call `convert("RGB")`, so that is what models have seen in training.
    - CMYK, which Pillow reads as Adobe writes it (inverted), is converted without the colour profile.
    - 16-bit greyscale keeps its high byte, which is what Pillow keeps of 16-bit colour; `convert` would make white of all
      that is above 255.
    """
    # Converting would warn of a transparent colour that it drops.
    image.info.pop("transparency", None)
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")
