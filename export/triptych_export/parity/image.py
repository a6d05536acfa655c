"""Outputs of an image classifier for the parity check: PyTorch, and the graph in serving's session."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from triptych_export.parity.comparison import Floats, Outputs
from triptych_export.parity.generated_images import Pixels
from triptych_export.samples import chunks
from triptych_serving.runtime.session import Session


def answer_images_in_torch(model: nn.Module, pixels: Pixels, mean: Sequence[float], std: Sequence[float]) -> Outputs:
    """Compute the probabilities of one image; pixels are normalised as in training."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    centre, scale = (torch.tensor(values)[:, None, None] for values in (mean, std))
    with torch.no_grad():
        probabilities = torch.softmax(model((image - centre) / scale)[0], -1)
    return {"probabilities": probabilities.numpy()}


def answer_images_in_session(session: Session, images: Sequence[Pixels], size: int, classes: int) -> list[Outputs]:
    """Compute the graph's probabilities in the labels' order, `size` images per batch."""
    return [answer for chunk in chunks(images, size) for answer in _run(session, np.stack(chunk), classes)]


def _run(session: Session, pixels: NDArray[Any], classes: int) -> list[Outputs]:
    inputs = {"pixels": pixels, "k": np.array([classes], np.int64)}
    scores, labels = session.run(inputs, ["scores", "labels"])
    ordered: Floats = np.zeros_like(scores)
    np.put_along_axis(ordered, labels, scores, axis=-1)
    return [{"probabilities": row} for row in ordered]
