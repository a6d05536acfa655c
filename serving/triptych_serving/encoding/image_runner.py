"""Batches of images through a ViT graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.encoding.engine import Runner
from triptych_serving.runtime.session import Array, Session
from triptych_serving.scheduling.request import Item

SCORES, LABELS = "scores", "labels"


@dataclass(eq=False, slots=True)
class ImageRow:
    """One image: the payload of an Item, whose result is (scores, labels), each [k]."""

    pixels: NDArray[np.uint8]  # [height, width, 3]
    k: int  # labels, at most as many as the model has


class ImageRunner(Runner):
    """Stacks images of the graph's input size and runs them."""

    def __init__(self, session: Session, spec: ImageSpec) -> None:
        self._session = session
        self._spec = spec

    def warm_up(self) -> None:
        pixels = np.zeros((self._spec.height, self._spec.width, 3), np.uint8)
        self.run(self.prepare([Item(ImageRow(pixels, 1), 1)]))

    def prepare(self, items: Sequence[Item]) -> dict[str, Array]:
        rows: list[ImageRow] = [item.payload for item in items]
        pixels = np.stack([row.pixels for row in rows])
        return {"pixels": pixels, "k": np.array([max(row.k for row in rows)], np.int64)}

    def run(self, batch: dict[str, Array]) -> list[Array]:
        return self._session.run(batch, (SCORES, LABELS))

    def finish(self, items: Sequence[Item], outputs: list[Array]) -> None:
        copy_results(items, *outputs)


def copy_results(items: Sequence[Item], scores: Array, labels: Array) -> None:
    """Copy each image's part of `[images, k]` to its item; k may be larger than the image's."""
    for index, item in enumerate(items):
        k = item.payload.k
        item.result = (scores[index, :k].copy(), labels[index, :k].copy())
