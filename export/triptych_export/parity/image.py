"""Image classifiers in the parity check: outputs of PyTorch and of the graph in serving's session, and generated images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from triptych_export.parity.comparison import Floats, Outputs, chunks
from triptych_serving.bundle.manifest.image import LATENTS, PIXELS
from triptych_serving.runtime.session import Session

Pixels = NDArray[np.uint8]  # [height, width, 3]


def answer_images_in_torch(model: nn.Module, pixels: Pixels, mean: Sequence[float], std: Sequence[float]) -> Outputs:
    """Compute the probabilities of one image; pixels are normalised as in training."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    centre, scale = (torch.tensor(values)[:, None, None] for values in (mean, std))
    with torch.no_grad():
        probabilities = torch.softmax(model((image - centre) / scale)[0], -1)
    return {"probabilities": probabilities.numpy()}


def answer_images_in_session(session: Session, images: Sequence[Pixels], size: int, classes: int) -> list[Outputs]:
    """Compute the graph's probabilities in the labels' order, `size` images per batch."""
    answers: list[Outputs] = []
    for chunk in chunks(images, size):
        inputs: dict[str, NDArray[Any]] = {PIXELS: np.stack(chunk), "k": np.array([classes])}
        scores, labels = session.run(inputs, ["scores", "labels"])
        ordered: Floats = np.zeros_like(scores)
        np.put_along_axis(ordered, labels, scores, axis=-1)
        answers += [{"probabilities": row} for row in ordered]
    return answers


def answer_autoencoder(
    encoder: Session, decoder: Session, images: Sequence[Pixels], expected: Sequence[Outputs], size: int
) -> list[Outputs]:
    """Compute the graphs' outputs, `size` images per batch; the decoder's are of the expected latents."""
    answers: list[Outputs] = []
    for chunk in chunks(list(zip(images, expected, strict=True)), size):
        outputs: dict[str, Floats] = {}
        for session, inputs in (
            (encoder, {PIXELS: np.stack([pixels for pixels, _ in chunk])}),
            (decoder, {LATENTS: np.stack([answer[LATENTS] for _, answer in chunk])}),
        ):
            outputs |= dict(zip(session.outputs, session.run(inputs), strict=True))
        answers += [{name: values[row] for name, values in outputs.items()} for row in range(len(chunk))]
    return answers


BLOBS = 6
STRONGEST_NOISE = 40.0  # standard deviation, of 255


def generate_images(count: int, height: int, width: int) -> list[Pixels]:
    """Generate `count` images with a fixed seed, from smooth to noisy: gradients, blobs of colour and noise."""
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
