"""Text embedding: texts as vectors."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import numpy as np

from triptych_serving.bundle.manifest.text import POOLINGS
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import STATES
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_range, check_results
from triptych_serving.models.text.task import TextParts, TextTask, item_maker, make_item
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Item
from triptych_serving.text.tokenizers import KeptEncoding
from triptych_text.steps import Steps

SHORTEST = float(np.finfo(np.float32).tiny)  # length that a vector is divided by

EMBEDDING = "embedding"  # the capability; every model of the text family has it


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """The vector of one text."""

    values: Sequence[float]  # an array of 4 bytes each: as a tuple, vectors take eight times as much
    token_count: int  # including [CLS] and [SEP]
    truncated: bool = False
    token_values: Sequence[float] = ()  # the tokens' vectors, one after another; these three are empty unless requested
    token_starts: Sequence[int] = ()  # Unicode code points from the start of the text
    token_ends: Sequence[int] = ()  # exclusive


def prepare_embedding(
    model: TextParts,
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    truncate: bool = False,
    token_vectors: bool = False,
    prompt_name: str = "",
) -> Steps[Work[TextEmbedding]]:
    """Check and tokenize texts in small steps, in which "[MASK]" is ordinary text.

    Args:
        texts: order is kept.
        pooling: "mean" (over all tokens, including [CLS] and [SEP]) or "cls" (last hidden state of [CLS]).
        normalize: scale each vector to length 1.
        dimensions: number of values to keep of each vector; None: all.
        truncate: cut off the end of texts that are too long.
        token_vectors: also return the vector of each token.
        prompt_name: one of the model's prompts, which is put before every text; empty: none.

    Raises:
        InvalidInputError: a text is empty or too long, pooling or prompt are unknown, a vector has fewer dimensions, or the
            vectors would be too large.
        UnsupportedError: the model has no vectors of tokens.
    """
    pooling = model.manifest.pooling if pooling is None else pooling
    normalize = model.manifest.normalize if normalize is None else normalize
    if pooling not in POOLINGS:
        raise InvalidInputError("pooling", f"{pooling!r} is unknown, it must be one of: {', '.join(POOLINGS)}")
    if dimensions is not None:
        check_range("dimensions", dimensions, 1, model.manifest.hidden_size)
    if token_vectors and not model.manifest.states:
        problem = "the model's bundle has only vectors of whole texts; if it is an ELMo, export it again for those of tokens"
        raise UnsupportedError(f"token_vectors: {problem}")
    _check_size(model, len(texts))
    if prompt_name:
        prompt = _prompt(model, prompt_name)
        texts = [f"{prompt}{text}" if text.strip() else text for text in texts]  # an empty text stays one
    inputs, most = [(text,) for text in texts], model.limits.waiting_tokens
    if not token_vectors:
        make = item_maker(pooling)
        items, truncated = yield from model.tokenizer.encode_or_truncate(inputs, make, truncate=truncate, most=most)
        return Work(items, partial(_read, items, truncated, pooling, normalize, dimensions), 1_000 * len(items))
    encodings, truncated = yield from model.tokenizer.encode_or_truncate(
        inputs, KeptEncoding, truncate=truncate, offsets=True, most=most
    )
    tokens = sum(map(len, encodings))
    _check_size(model, len(texts) + tokens)
    items = [make_item(encoding, (pooling, STATES)) for encoding in encodings]
    read = partial(_read_tokens, items, truncated, encodings, pooling, normalize, dimensions)
    return Work(items, read, 1_000 * tokens)


def _prompt(model: TextParts, name: str) -> str:
    prompts = model.manifest.prompts
    if name not in prompts:
        known = f"it has {', '.join(map(repr, prompts))}" if prompts else "it has none"
        raise InvalidInputError("prompt_name", f"{name!r:.60} is not a prompt of the model; {known}")
    return prompts[name]


def _check_size(model: TextParts, vectors: int) -> None:
    width = model.manifest.hidden_size
    what, remedy = f"{vectors:,} vectors of {width:,} numbers", "send fewer texts per request"
    check_results("contents", vectors * (NUMBER_BYTES * width + ROW_BYTES), what, model.limits, remedy)


def _read(
    items: Sequence[Item], truncated: Sequence[bool], pooling: str, normalize: bool, dimensions: int | None
) -> Iterator[TextEmbedding]:
    for item, cut in zip(items, truncated, strict=True):
        vector = np.asarray(item.result[pooling][:dimensions], np.float32)
        if normalize:  # one by one: most requests have a single text, for which `_units` takes three times as long
            vector = vector / max(sqrt(vector.dot(vector)), SHORTEST)
        yield TextEmbedding(array("f", vector.tobytes()), item.size, cut)


def _read_tokens(
    items: Sequence[Item],
    truncated: Sequence[bool],
    encodings: Sequence[KeptEncoding],
    pooling: str,
    normalize: bool,
    dimensions: int | None,
) -> Iterator[TextEmbedding]:
    texts = _read(items, truncated, pooling, normalize, dimensions)
    for text, item, encoding in zip(texts, items, encodings, strict=True):
        states = item.result[STATES][:, :dimensions]
        values = array("f", (_units(states) if normalize else states).tobytes())
        starts, ends = zip(*encoding.offsets, strict=True)
        yield replace(text, token_values=values, token_starts=starts, token_ends=ends)


def _units(vectors: Array) -> Array:
    """Scale the rows to length 1."""
    return np.asarray(vectors / np.maximum(np.sqrt((vectors * vectors).sum(1, keepdims=True)), SHORTEST))


EMBEDDING_TASK = TextTask(EMBEDDING, "embeds text", prepare_embedding)
