"""Attention of one input: from a sentence or an image to weights, and the tokens or patches that they belong to."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_serving.bundle.manifest import AlignmentHeads, Framing
from triptych_serving.encoding.options import Work
from triptych_serving.errors import InvalidInputError
from triptych_serving.images.decode import decode_image, resized
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Item
from triptych_serving.text.languages import resolve_pair
from triptych_serving.text.spans import Span, target_spans
from triptych_serving.text.tokenizers import KeptEncoding
from triptych_serving.text.translation_tokenizer import EncodedSource
from triptych_serving.text.validation import InputNames
from triptych_text.steps import finish

Weights = Mapping[str, Any]  # `encoder`, `decoder` and `cross`, as far as the model has them
AttendingModel = Translator | TextModel | ImageModel
NOWHERE: Span = (0, 0)  # of special tokens
WHOLE = DecodingOptions(split_sentences=SplitSentences.OFF)
SOURCE, TARGET, TEXTS = (InputNames("", parts) for parts in (("text",), ("target",), ("text", "text_pair")))
SHORTER = "send a shorter text, or use a smaller model"
WORD_MARKS = "▁Ġ"  # of tokenizers, for a space


@dataclass(frozen=True)
class AttentionInput:
    """Input of an attention graph: a text, with its translation or second text, or an image file."""

    text: str = ""
    target: str = ""  # translation models; they need one
    text_pair: str = ""  # models of the BERT family
    image: bytes = b""  # image classifiers, instead of a text
    source_language: str = ""
    target_language: str = ""

    def check(self, model: AttendingModel) -> None:
        """Reject what does not fit the model. Raises InvalidInputError: a field does not apply to the model; names it."""
        mine = KINDS[type(model)][0]
        for name in ("text", "target", "text_pair", "image"):
            if getattr(self, name) and name not in mine:
                takes = " and ".join(f"`{each}`" for each in mine)
                raise InvalidInputError(
                    name, f"does not apply to model {model.name!r} ({model.manifest.task}), which takes {takes}"
                )


@dataclass(frozen=True)
class Token:
    """A token as text, and its span in the text; empty for special tokens."""

    text: str
    start: int = 0
    end: int = 0
    in_pair: bool = False


@dataclass(frozen=True)
class Attention:
    """Attention weights, `[layers, heads, targets, sources]`, and what they belong to."""

    encoder: Array
    decoder: Array | None = None
    cross: Array | None = None
    source_tokens: Sequence[Token] = ()
    target_tokens: Sequence[Token] = ()
    target: str = ""
    patch_rows: int = 0
    patch_columns: int = 0
    crop_width: float = 0.0  # share of the image's width that the patches cover
    crop_height: float = 0.0
    alignment: AlignmentHeads | None = None


def attend(model: AttendingModel, given: AttentionInput) -> Attention:
    """Compute the attention in this process, and wait; without a target, a translation model's own translation is taken.

    Raises:
        ServingError: as for `prepare_attention`; or the engine rejected the input, or the runtime failed.
    """
    if isinstance(model, Translator) and not given.target:
        check_source(model, given)
        [translation] = model.translate([given.text], WHOLE, given.source_language, given.target_language)
        given = replace(given, target=translation.text)
    work = prepare_attention(model, given)
    run_rows(model.attender.engine, work.items, work.field)
    [attention] = work.read()
    return attention


def check_source(model: Translator, given: AttentionInput) -> None:
    """Check a text before it is translated, and that the model has an attention graph. Raises as `prepare_attention`."""
    given.check(model)
    source, framing = _encode_source(model, given)
    model.attender.check("text", SHORTER, S=len(source.ids), T=len(framing.forced))


def prepare_attention(model: AttendingModel, given: AttentionInput) -> Work[Attention]:
    """Check and tokenize an input, or decode the image; loads the graph if it is not. That takes some tenths of a second.

    Raises:
        UnsupportedError: the model's bundle has no attention graph.
        InvalidInputError: the input cannot be used, or has too many weights for a response.
    """
    given.check(model)
    prepare: Callable[[Any, AttentionInput], Work[Attention]] = KINDS[type(model)][1]
    return prepare(model, given)


def _encode_source(model: Translator, given: AttentionInput) -> tuple[EncodedSource, Framing]:
    framing = resolve_pair(model.manifest, given.source_language, given.target_language).framing
    [source] = finish(model.tokenizer.encode_source_steps([given.text], framing, SOURCE, spans=True))
    return source, framing


def _of_translation(model: Translator, given: AttentionInput) -> Work[Attention]:
    source, framing = _encode_source(model, given)
    tokenizer, forced = model.tokenizer, framing.forced
    [target] = finish(tokenizer.encode_targets([given.target], TARGET, len(forced)))
    start, rows = model.manifest.tokens.start, [*forced, *target]
    inputs = {"source": np.array([source.ids], np.int64), "targets": np.array([[start, *rows]], np.int64)}
    model.attender.check("text", SHORTER, S=len(source.ids), T=len(rows))

    def read(weights: Weights) -> Attention:
        [text] = tokenizer.decode([target[:-1]])
        spans: list[Span] = [*[NOWHERE] * source.before, *source.spans, *[NOWHERE] * source.after]
        sources = _tokens(given.text, spans, tokenizer.pieces(source.ids))
        spans = [*[NOWHERE] * len(forced), *target_spans(text, target[:-1], tokenizer.decode), NOWHERE]
        targets = _tokens(text, spans, tokenizer.pieces(rows, target=True))
        heads = model.manifest.alignment
        return Attention(**weights, source_tokens=sources, target_tokens=targets, target=text, alignment=heads)

    return _work(model.attender.item(inputs, len(source.ids) + len(rows)), read, "text")


def _of_text(model: TextModel, given: AttentionInput) -> Work[Attention]:
    tokenizer, texts = model.tokenizer, (given.text, given.text_pair) if given.text_pair else (given.text,)
    if tokenizer.mask in given.text and not given.text_pair:  # a mask is worth looking at
        [encoding] = finish(tokenizer.encode_masked([given.text], KeptEncoding, offsets=True))
    else:
        [encoding] = finish(tokenizer.encode([texts], KeptEncoding, TEXTS, offsets=True))
    inputs = {"ids": encoding.ids[None], "segments": encoding.type_ids[None], "lengths": np.array([len(encoding)], np.int32)}
    model.attender.check("text", SHORTER, S=len(encoding))

    def read(weights: Weights) -> Attention:
        tokens = []
        for number, part, span in zip(encoding.ids.tolist(), encoding.sequence_ids, encoding.offsets, strict=True):
            [token] = _tokens(texts[part or 0], [NOWHERE if part is None else span], [tokenizer.token(number)])
            tokens.append(replace(token, in_pair=part == 1))
        return Attention(**weights, source_tokens=tokens)

    return _work(model.attender.item(inputs, len(encoding)), read, "text")


def _of_image(model: ImageModel, given: AttentionInput) -> Work[Attention]:
    if not given.image:
        raise InvalidInputError("image", f"is empty; model {model.name!r} attends to a JPEG, PNG or WebP file")
    model.attender.check("image", "use a model with fewer or larger patches")
    spec = model.manifest.image
    image = decode_image(given.image, spec, "image")
    width, height = resized((image.width, image.height), spec)

    def read(weights: Weights) -> Attention:
        rows, columns = patch_grid(weights["encoder"].shape[-1], spec.height, spec.width)
        crop_width, crop_height = spec.width / width, spec.height / height
        return Attention(**weights, patch_rows=rows, patch_columns=columns, crop_width=crop_width, crop_height=crop_height)

    return _work(model.attender.item({"pixels": image.pixels[None]}), read, "image")


KINDS: Mapping[type, tuple[tuple[str, ...], Callable[..., Work[Attention]]]] = {  # fields of the input
    Translator: (("text", "target"), _of_translation),
    TextModel: (("text", "text_pair"), _of_text),
    ImageModel: (("image",), _of_image),
}


def patch_grid(positions: int, height: int, width: int) -> tuple[int, int]:
    """Return rows and columns of square patches, which follow one or two special tokens; (0, 0) for other patches."""
    for special in (1, 2):
        patches = positions - special
        rows = math.isqrt(patches * height // width)
        if rows and not patches % rows and rows * width == patches // rows * height:
            return rows, patches // rows
    return 0, 0


def _tokens(text: str, spans: Sequence[Span], pieces: Sequence[str]) -> list[Token]:
    """Return tokens with the text of their spans; those without, such as [CLS], are as in the vocabulary."""
    found = zip(spans, pieces, strict=True)
    return [Token(text[start:end] or piece.strip(WORD_MARKS) or "␣", start, end) for (start, end), piece in found]


def _work(item: Item, read: Callable[[Weights], Attention], name: str) -> Work[Attention]:
    def results() -> Iterator[Attention]:
        yield read({name: weights[0] for name, weights in item.result.items()})

    return Work([item], results, item.size, name)
