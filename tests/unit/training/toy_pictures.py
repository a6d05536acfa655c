"""Tiny images of three colours, in folders."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"blue": (30, 40, 200), "green": (30, 180, 40), "red": (210, 30, 30)}


def write_picture(path: Path, colour: tuple[int, int, int], seed: int = 0) -> Path:
    """Write a noisy PNG of 8 x 8 pixels."""
    noise = np.random.default_rng(seed).integers(-25, 26, (8, 8, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(path)
    return path


def write_pictures(root: Path, each: int = 6) -> str:
    """Write `<colour>/<number>.png` files."""
    for label, (name, colour) in enumerate(COLOURS.items()):
        for number in range(each):
            write_picture(root / name / f"{number:02d}.png", colour, seed=100 * label + number)
    return str(root)
