"""A loaded model that generates images from latents: a variational autoencoder (Kingma and Welling 2014)."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import AutoencoderManifest
from triptych_serving.bundle.manifest.base import Graph
from triptych_serving.bundle.manifest.image import LATENTS, PIXELS
from triptych_serving.encoding.options import DEFAULTS, EncoderOptions, Work
from triptych_serving.encoding.tensor_runner import TensorRows
from triptych_serving.errors import InvalidInputError
from triptych_serving.images.decode import decode_image
from triptych_serving.models.capabilities import describe
from triptych_serving.models.encoder_model import OneShotModel
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_range, check_results, check_rows
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Item
from triptych_text.steps import Steps, finish

PIXELS_PER_TOKEN = 256  # the unit of batch sizes, as for image classifiers
DEFAULT_STEPS = 8  # images of an interpolation
PNG_BYTES = 1_000  # more than the pixels of an image, at most

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LatentQuery:
    """Latents to decode: those of `images`, with `steps` from the first to the second; or `latents`; or `count` random ones."""

    images: Sequence[bytes] = ()
    steps: int | None = None
    latents: Sequence[Sequence[float]] = ()
    count: int | None = None
    seed: int | None = None  # None: another one each time

    @property
    def field(self) -> str:
        """The field that decides how many images are made."""
        return "steps" if self.steps is not None else "images" if self.images else "latents" if self.latents else "count"

    @property
    def rows(self) -> int:
        """Number of images to make."""
        given = len(self.images) or len(self.latents) or (1 if self.count is None else self.count)
        return given if self.steps is None else self.steps


@dataclass(frozen=True, slots=True)
class GeneratedImage:
    """An image, and the latents that it was decoded from."""

    image: bytes  # PNG file
    latents: tuple[float, ...]


class Autoencoder(OneShotModel):
    """A variational autoencoder: encoder and decoder, each behind an engine."""

    manifest: AutoencoderManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions = DEFAULTS) -> None:
        super().__init__(name, version, bundle, options)
        self.manifest = bundle.manifest_of(AutoencoderManifest)
        try:
            for file in self.manifest.precisions[self.precision].files:
                self._load_graph(bundle, options, Graph(file))
        except BaseException:
            self.close(drain=False)
            raise
        self.encoder, self.decoder = self.engines

    def run(self, query: LatentQuery) -> list[GeneratedImage]:
        """Answer a request in this process and wait; arguments and errors as for `read_steps` and `decoding`."""
        work = finish(self.read_steps(query))
        run_rows(self.encoder, work.items, work.field)
        work_of_decoder = self.decoding(query, list(work.read()))
        run_rows(self.decoder, work_of_decoder.items, work_of_decoder.field)
        return list(work_of_decoder.read())

    def read_steps(self, query: LatentQuery) -> Steps[Work[Floats]]:
        """Check a request and decode its image files in small steps; items for `encoder`, whose results are latents.

        Raises:
            InvalidInputError: an image or a number is not acceptable; names the field.
        """
        self._check(query)
        arrays = []
        for index, data in enumerate(query.images):
            arrays.append(decode_image(data, self.manifest.image, f"images[{index}]").pixels)
            yield
        items = self.items({PIXELS: np.stack(arrays)}, LATENTS) if arrays else []
        return Work(items, lambda: (item.result[LATENTS][0] for item in items), len(items), "images")

    def decoding(self, query: LatentQuery, encoded: Sequence[Floats]) -> Work[GeneratedImage]:
        """Choose the latents of a checked request; items for `decoder`. `encoded` are those of its images.

        Raises:
            InvalidInputError: given latents are not as many finite numbers as the model has.
        """
        if query.steps is not None:
            shares = np.linspace(0, 1, query.steps, dtype=np.float32)[:, None]
            latents = encoded[0] + shares * (encoded[1] - encoded[0])
        elif query.images:
            latents = np.stack(encoded)
        elif query.latents:
            latents = np.stack([self._given(index, values) for index, values in enumerate(query.latents)])
        else:
            seed = secrets.randbits(64) if query.seed is None else query.seed
            latents = np.random.default_rng(seed).standard_normal((query.rows, self.manifest.latents), np.float32)
        items = self.items({LATENTS: latents}, PIXELS)
        return Work(items, lambda: map(_generated, items, latents), self._bytes * len(items), query.field)

    def items(self, inputs: Mapping[str, NDArray[np.generic]], *outputs: str) -> list[Item]:
        """Make an item of each row of the inputs, for one of the engines."""
        size = max(1, self._bytes // (3 * PIXELS_PER_TOKEN))
        rows = range(len(next(iter(inputs.values()))))
        return [Item(TensorRows({k: v[row : row + 1] for k, v in inputs.items()}, 1, outputs), size) for row in rows]

    def describe(self) -> str:
        size = f"{self.manifest.image.width} x {self.manifest.image.height} pixels"
        return f"{describe(self.capabilities)}, {self._graphs[0].takes}, {size}, {self.manifest.latents:,} latents"

    @property
    def _bytes(self) -> int:
        return 3 * self.manifest.image.width * self.manifest.image.height

    def _check(self, query: LatentQuery) -> None:
        if query.steps is not None:
            check_range("steps", query.steps, 2)
            if len(query.images) != 2:
                raise InvalidInputError(
                    "images", f"{len(query.images):,} images, an interpolation has 2: the first and the last"
                )
        for name in ("count", "seed"):
            if (query.images or query.latents) and getattr(query, name) is not None:
                raise InvalidInputError(name, "it is for random latents; leave it out, or the images or latents")
        rows = check_range(query.field, query.rows, 1)
        check_rows(query.field, rows, self._limits)
        what, each = f"{rows:,} images of {self.manifest.image.width} x {self.manifest.image.height} pixels", self._bytes
        each += PNG_BYTES + NUMBER_BYTES * self.manifest.latents + ROW_BYTES
        check_results(query.field, rows * each, what, self._limits, "ask for fewer per request")

    def _given(self, index: int, values: Sequence[float]) -> Floats:
        found = np.asarray(values, np.float32)
        if len(found) != self.manifest.latents or not np.isfinite(found).all():
            problem = f"{len(found):,} numbers, must be {self.manifest.latents:,} finite ones"
            raise InvalidInputError(f"latents[{index}].values", problem)
        return found


def _generated(item: Item, latents: Floats) -> GeneratedImage:
    file = BytesIO()
    pixels = np.rint(item.result[PIXELS][0] * 255).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return GeneratedImage(file.getvalue(), tuple(latents.tolist()))
