"""Text embedding: texts as vectors."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from triptych_serving.bundle.manifest.text import POOLINGS
from triptych_serving.encoding.options import Work
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import NUMBER_BYTES, ROW_BYTES, check_results
from triptych_serving.models.text.task import TextParts, TextTask, item_maker
from triptych_serving.scheduling.request import Item
from triptych_text.steps import Steps

READ_TOGETHER = 64  # vectors that are normalized together

EMBEDDING = "embedding"  # the capability; every model of the text family has it


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """The vector of one text."""

    values: Sequence[float]  # an array of 4 bytes each: as a tuple, vectors take eight times as much
    token_count: int  # including [CLS] and [SEP]
    truncated: bool = False


def prepare_embedding(
    model: TextParts,
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    truncate: bool = False,
) -> Steps[Work[TextEmbedding]]:
    """Check and tokenize texts in small steps, in which "[MASK]" is ordinary text.

    Args:
        texts: order is kept.
        pooling: "mean" (over all tokens, including [CLS] and [SEP]) or "cls" (last hidden state of [CLS]).
        normalize: scale each vector to length 1.
        dimensions: number of values to keep of each vector; None: all.
        truncate: cut off the end of texts that are too long.

    Raises:
        InvalidInputError: a text is empty or too long, the pooling is unknown, a vector has fewer dimensions, or the vectors
            would be too large.
    """
    pooling = model.manifest.pooling if pooling is None else pooling
    normalize = model.manifest.normalize if normalize is None else normalize
    if pooling not in POOLINGS:
        raise InvalidInputError("pooling", f"{pooling!r} is unknown, it must be one of: {', '.join(POOLINGS)}")
    if dimensions is not None and not 1 <= dimensions <= model.manifest.hidden_size:
        raise InvalidInputError("dimensions", f"{dimensions:,} is not from 1 to {model.manifest.hidden_size:,}")
    count, width = len(texts), model.manifest.hidden_size
    what = f"{count:,} vectors of {width:,} numbers"
    check_results("contents", count * (NUMBER_BYTES * width + ROW_BYTES), what, model.limits, "send fewer texts per request")
    inputs, most = [(text,) for text in texts], model.limits.waiting_tokens
    items, truncated = yield from model.tokenizer.encode_or_truncate(inputs, item_maker(pooling), truncate=truncate, most=most)
    return Work(items, partial(_read, items, truncated, pooling, normalize, dimensions), 1_000 * len(items))


def _read(
    items: Sequence[Item], truncated: Sequence[bool], pooling: str, normalize: bool, dimensions: int | None
) -> Iterator[TextEmbedding]:
    for start in range(0, len(items), READ_TOGETHER):
        some = slice(start, start + READ_TOGETHER)
        vectors = np.stack([item.result[pooling][:dimensions] for item in items[some]])
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        for vector, item, cut in zip(vectors, items[some], truncated[some], strict=True):
            yield TextEmbedding(array("f", vector.tobytes()), item.size, cut)


EMBEDDING_TASK = TextTask(EMBEDDING, "embeds text", prepare_embedding)
