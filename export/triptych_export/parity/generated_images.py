"""Generated images for parity checks without sample files: gradients, blobs of colour and noise, with a fixed seed."""

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # [height, width, 3]

BLOBS = 6
STRONGEST_NOISE = 40.0  # standard deviation, of 255


def generate_images(count: int, height: int, width: int) -> list[Pixels]:
    """Generate `count` images, from smooth to noisy."""
    chance = np.random.default_rng(20_201_022)
    return [_image(chance, height, width, STRONGEST_NOISE * index / max(1, count - 1)) for index in range(count)]


def _image(chance: np.random.Generator, height: int, width: int, noise: float) -> Pixels:
    rows, columns = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)[None]
    corners = chance.uniform(0, 255, (3, 3))
    colours = corners[0] + (corners[1] - corners[0]) * rows[..., None] + (corners[2] - corners[0]) * columns[..., None]
    for _ in range(BLOBS):
        row, column = chance.uniform(0, 1, 2)
        size = chance.uniform(0.05, 0.4)
        share = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * size**2))[..., None]
        colours = colours * (1 - share) + chance.uniform(0, 255, 3) * share
    colours += noise * chance.normal(size=colours.shape)
    pixels: Pixels = np.clip(colours, 0, 255).astype(np.uint8)
    return pixels
