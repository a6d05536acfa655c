"""Text embedding: texts as vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.bundle.manifest.text import POOLINGS
from triptych_serving.encoding.options import Work
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.task import TextTask, make_items
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertTokenizer

EMBEDDING = "embedding"  # the capability; every model of the text family has it


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """The vector of one text."""

    values: tuple[float, ...]
    token_count: int  # including [CLS] and [SEP]
    truncated: bool = False


def prepare_embedding(
    tokenizer: BertTokenizer,
    manifest: TextManifest,
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    truncate: bool = False,
) -> Work[TextEmbedding]:
    """Check and tokenize texts, in which "[MASK]" is ordinary text.

    Args:
        tokenizer: the model's.
        manifest: has the defaults of pooling and normalize.
        texts: order is kept.
        pooling: "mean" (over all tokens, including [CLS] and [SEP]) or "cls" (last hidden state of [CLS]).
        normalize: scale each vector to length 1.
        dimensions: number of values to keep of each vector; None: all.
        truncate: cut off the end of texts that are too long.

    Raises:
        InvalidInputError: a text is empty or too long, the pooling is unknown, or a vector has fewer dimensions.
    """
    pooling = manifest.pooling if pooling is None else pooling
    normalize = manifest.normalize if normalize is None else normalize
    if pooling not in POOLINGS:
        raise InvalidInputError("pooling", f"{pooling!r} is unknown, it must be one of: {', '.join(POOLINGS)}")
    if dimensions is not None and not 1 <= dimensions <= manifest.hidden_size:
        raise InvalidInputError("dimensions", f"{dimensions:,} is not from 1 to {manifest.hidden_size:,}")
    encodings, truncated = tokenizer.encode_or_truncate([(text,) for text in texts], truncate=truncate)
    items = make_items(encodings, (pooling,))
    return Work(items, partial(_read, items, truncated, pooling, normalize, dimensions), 1_000 * len(items))


def _read(
    items: Sequence[Item], truncated: Sequence[bool], pooling: str, normalize: bool, dimensions: int | None
) -> list[TextEmbedding]:
    vectors = np.stack([item.result[pooling][:dimensions] for item in items])
    if normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    rows = zip(vectors.tolist(), items, truncated, strict=True)
    return [TextEmbedding(tuple(values), item.size, cut) for values, item, cut in rows]


EMBEDDING_TASK = TextTask(EMBEDDING, "embeds text", prepare_embedding)
