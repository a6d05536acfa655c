"""The first requests of a model, asked by the server itself before anybody else can: what they wait for, later ones need not.

They go the whole way, tokenizer and results included, and come in several sizes: memory arenas grow with the largest batch.
"""

import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

from PIL import Image

from triptych_serving.bundle.capability import EMBEDDING
from triptych_serving.bundle.manifest import FILL_MASK, QUESTION_ANSWERING, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.model import Model
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.translator import Translator

logger = logging.getLogger(__name__)

# Inputs, words in each: small to large. BERT and ViT run up to 1,024 tokens at once, translation encodes up to 512.
SIZES = ((1, 1), (1, 24), (8, 8), (32, 24))
SMALL_SIZES = ((1, 1), (8, 8))  # for rarer requests: memory for large ones is taken when they come
ENOUGH_SECONDS = 0.5  # a model that took so long for one size is not asked a larger one: its computing outweighs what is saved

Ask = Callable[[int, str], object]  # inputs, text
Sizes = Sequence[tuple[int, int]]


class WarmUp(StrEnum):
    """What a model is asked before it serves."""

    NONE = "none"  # nothing: graphs are loaded when they are first needed
    USUAL = "usual"  # what requests without options need
    ALL = "all"  # every graph of the precision that runs


TEXT_TASKS: Mapping[str, Callable[[TextModel, int, str], object]] = {
    FILL_MASK: lambda model, count, text: model.fill_mask([f"{text} [MASK]"] * count),
    EMBEDDING: lambda model, count, text: model.embed([text] * count),
    TEXT_CLASSIFICATION: lambda model, count, text: model.classify([_single_or_pair(model, text)] * count),
    TOKEN_CLASSIFICATION: lambda model, count, text: model.classify_tokens([text] * count),
    QUESTION_ANSWERING: lambda model, count, text: model.answer([(text, text)] * count),
}


def warm(model: Model, warm_up: WarmUp) -> None:
    """Ask a model what it will be asked.

    Raises:
        EngineError: the runtime failed.
    """
    if warm_up is WarmUp.NONE:
        return
    began = time.monotonic()
    for ask, sizes in _questions(model, warm_up):
        _ask(model, ask, sizes)
    for engine in model.engines:
        engine.forget()
    logger.debug("model %s version %d warmed up in %.2f s", model.name, model.version, time.monotonic() - began)


def _ask(model: Model, ask: Ask, sizes: Sizes) -> None:
    for count, words in sizes:
        began = time.monotonic()
        try:
            ask(count, " ".join(["a"] * words))
        except (InvalidInputError, UnsupportedError) as error:  # too long for this model, or an old bundle without this graph
            logger.debug("model %s version %d is not warmed up with %d: %s", model.name, model.version, words, error)
        if time.monotonic() - began > ENOUGH_SECONDS:
            return


def _questions(model: Model, warm_up: WarmUp) -> Iterator[tuple[Ask, Sizes]]:
    match model:
        case Translator():
            yield from _of_translator(model, warm_up)
        case TextModel():
            for capability in model.capabilities:
                yield partial(TEXT_TASKS[capability], model), SIZES
        case ImageModel():
            picture = _picture(model)
            yield lambda count, _: model.classify([picture] * count), SIZES


def _of_translator(model: Translator, warm_up: WarmUp) -> Iterator[tuple[Ask, Sizes]]:
    manifest = model.manifest
    pair = manifest.source_languages[0], manifest.target_languages[0]
    usual = DecodingOptions(max_length=2, min_length=0)
    yield lambda count, text: model.translate([text] * count, usual, *pair), SIZES
    if warm_up is WarmUp.ALL:
        search = DecodingOptions(max_length=2, min_length=0, beam_size=2)
        yield lambda count, text: model.translate([text] * count, search, *pair), SMALL_SIZES
        yield lambda count, text: model.score([(text, text)] * count, *pair), SMALL_SIZES


def _single_or_pair(model: TextModel, text: str) -> str | tuple[str, str]:
    manifest = model.manifest
    return (text, text) if manifest.next_sentence or (manifest.pairs and not manifest.singles) else text


def _picture(model: ImageModel) -> bytes:
    """A file of the model's own size."""
    spec, file = model.manifest.image, io.BytesIO()
    Image.new("RGB", (spec.width, spec.height)).save(file, "JPEG")
    return file.getvalue()
