"""Warm-up: requests that the server makes of a new model before it serves, so that no caller waits for a first run.

They take the whole path, including tokenizer and results, in several sizes: memory arenas grow with the largest batch.
"""

import io
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from PIL import Image

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.manifest import Colours
from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.errors import InvalidInputError, OverloadedError, UnsupportedError
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.image_generator import ImageGenerator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.image.autoencoder import Autoencoder, LatentQuery
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.text.tasks import TEXT_TASKS, TextTask
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import TranslationModel

logger = logging.getLogger(__name__)

# Inputs, words in each: small to large. BERT and ViT run up to 1,024 tokens at once, translation encodes up to 512.
SIZES = ((1, 1), (1, 24), (8, 8), (32, 24))
SMALL_SIZES = ((1, 1), (8, 8))  # for rarer requests, whose large sizes allocate memory when they come
ENOUGH_SECONDS = 0.5  # after a run of this length larger sizes are skipped: computing outweighs what warm-up saves

RunInputs = Callable[[int, str], object]  # number of inputs, text
Sizes = Sequence[tuple[int, int]]


class WarmUp(StrEnum):
    """Extent of the warm-up."""

    NONE = "none"  # graphs are loaded when they are first needed
    USUAL = "usual"  # requests without options
    ALL = "all"  # every graph of the precision in use


def warm(model: Model, warm_up: WarmUp) -> None:
    """Run warm-up requests and reset the model's counters. Raises EngineError: the runtime failed."""
    if warm_up is WarmUp.NONE:
        return
    began = time.monotonic()
    for run, sizes in _requests(model, warm_up):
        _run_sizes(model, run, sizes)
    for engine in model.engines:
        engine.forget()
    if isinstance(model, Generator):
        model.lanes.prefixes.clear()
    logger.debug("model %s version %d: warmed up in %.2f s", model.name, model.version, time.monotonic() - began)


def _run_sizes(model: Model, run: RunInputs, sizes: Sizes) -> None:
    for count, words in sizes:
        began = time.monotonic()
        try:
            run(count, " ".join(["a"] * words))
        # Too long for this model, an old bundle without this graph, or more than the queue has room for.
        except (InvalidInputError, UnsupportedError, OverloadedError) as error:
            logger.debug("model %s version %d: no warm-up with %d words: %s", model.name, model.version, words, error)
        if time.monotonic() - began > ENOUGH_SECONDS:
            return


def _requests(model: Model, warm_up: WarmUp) -> Iterator[tuple[RunInputs, Sizes]]:
    match model:
        case TranslationModel():
            yield from _translations(model, warm_up)
        case Generator():
            yield partial(_generate, model, DecodingOptions(sampling_topk=1)), SMALL_SIZES
            if warm_up is WarmUp.ALL:
                yield partial(_generate, model, DecodingOptions(sampling_topk=2)), SMALL_SIZES
        case TextModel():
            for name in model.capabilities:
                yield partial(_run_text, model, TEXT_TASKS[name]), SIZES
        case ImageModel():
            picture = _picture(model.manifest.image)
            yield lambda count, _: model.classify([picture] * count), SIZES
        case Autoencoder():
            picture = _picture(model.manifest.image)
            yield lambda count, _: model.run(LatentQuery(images=[picture] * count)), SIZES


def _run_text(model: TextModel, task: TextTask[object], count: int, text: str) -> None:
    model.run(task, [task.example(model.parts, text)] * count)


def _translations(model: TranslationModel[Any], warm_up: WarmUp) -> Iterator[tuple[RunInputs, Sizes]]:
    manifest = model.manifest
    pair = manifest.source_languages[0], manifest.target_languages[0]
    usual = DecodingOptions(max_length=2, min_length=0)
    yield lambda count, text: model.translate([text] * count, usual, *pair), SIZES
    if warm_up is WarmUp.ALL:
        search = DecodingOptions(max_length=2, min_length=0, beam_size=2)
        yield lambda count, text: model.translate([text] * count, search, *pair), SMALL_SIZES
        yield lambda count, text: model.score([(text, text)] * count, *pair), SMALL_SIZES


def _generate(model: Generator, options: DecodingOptions, count: int, text: str) -> None:
    request = GenerationRequest(prompts=[text] * count, options=options, max_tokens=2)
    if isinstance(model, ImageGenerator):  # the last row of pixels
        size = model.shape
        request = GenerationRequest(images=[_picture(size)] * count, rows=size.height - 1, options=options)
    model.generate(request)


def _picture(size: ImageSpec | Colours) -> bytes:
    """Return a JPEG file of a model's input size."""
    file = io.BytesIO()
    Image.new("RGB", (size.width, size.height)).save(file, "JPEG")
    return file.getvalue()
