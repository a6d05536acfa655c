"""A loaded model that completes images: tokens are colours of pixels in raster order (ImageGPT, Chen et al. 2020)."""

from functools import cached_property
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import Colours
from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.images.decode import Size, decode_resized
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest, ResolvedGeneration
from triptych_serving.models.generation.text import GeneratedChoice, Generation, PreparedGeneration, PreparedPrompt
from triptych_serving.models.request_cost import check_range
from triptych_serving.scheduling.request import Hypothesis, Row
from triptych_text.steps import Steps

HALF = 127.5  # bytes of a colour: -1 to 1 is 0 to 255


class ImageGenerator(Generator):
    """A Generator whose prompts are the upper parts of images, and whose choices have images."""

    @cached_property
    def shape(self) -> Colours:
        """Size of the images."""
        assert self.manifest.colours is not None
        return self.manifest.colours

    def rows_of(self, generation: Generation) -> int:
        """Return the number of rows of pixels that were kept."""
        return (generation.prompt_token_count - 1) // self.shape.width

    def _read(self, bundle: Bundle) -> None:
        path, size = bundle.path(self.shape.file), (self.manifest.vocabulary_size, 3)
        try:
            self._colours: NDArray[np.float32] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise BundleError(path, [f"not a NumPy array: {error}"]) from error
        if self._colours.shape != size or self._colours.dtype != np.float32:
            raise BundleError(path, [f"{self._colours.dtype} {self._colours.shape}, it must be float32 {size}"])
        if self.context <= self.shape.pixels:
            needed = f"an image has {self.shape.pixels:,} pixels and one token more"
            raise BundleError(bundle.folder, [f"a context of {self.context:,} tokens is too small (--max-context): {needed}"])

    def _prepare_steps(self, request: GenerationRequest, resolved: ResolvedGeneration) -> Steps[PreparedGeneration]:
        prompts = []
        for index, data in enumerate(request.images):
            field = f"images[{index}]"
            ids = [self.manifest.tokens.start or 0, *self._tokens(data, request.rows, field)]
            yield
            prompts.append(self._prompt(field, ids, None, request, resolved))
        return PreparedGeneration(tuple(prompts))

    def _tokens(self, data: bytes, rows: int | None, field: str) -> list[int]:
        """Return the closest colour of each pixel of the rows to keep."""
        height, width = self.shape.height, self.shape.width
        if rows is not None:
            check_range("rows", rows, 0, height - 1)

        def scaled(size: Size) -> Size:
            return width, max(1, round(size[1] * width / size[0]))

        image, _ = decode_resized(data, scaled, self.shape.interpolation, field)
        if rows is None:
            rows = image.height if image.height < height else height // 2
        if rows > image.height:
            problem = f"scaled to a width of {width:,} pixels, it has {image.height:,} rows, fewer than the {rows:,} to keep"
            raise InvalidInputError(field, f"{problem}; lower rows")
        pixels = np.asarray(image.crop((0, 0, width, rows)), np.float32).reshape(-1, 3) / HALF - 1
        closeness = 2 * pixels @ self._colours.T - np.square(self._colours).sum(1)
        tokens: list[int] = closeness.argmax(1).tolist()
        return tokens

    def _choice(self, prompt: PreparedPrompt, row: Row, hypothesis: Hypothesis) -> GeneratedChoice:
        colours = np.rint((self._colours[list(hypothesis.tokens)] + 1) * HALF).clip(0, 255).astype(np.uint8)
        file = BytesIO()
        Image.fromarray(colours.reshape(self.shape.height, self.shape.width, 3)).save(file, "PNG")
        score = hypothesis.score if row.search.scores else None
        return GeneratedChoice("", hypothesis.finish, len(hypothesis.tokens) - row.prompt, score=score, image=file.getvalue())
