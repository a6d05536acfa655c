"""Texts as vectors."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.bundle.manifest.text import POOLINGS
from triptych_serving.encoding.options import Work
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.results import TextEmbedding
from triptych_serving.models.text.task import make_items
from triptych_serving.scheduling.request import Item
from triptych_serving.text.bert_tokenizer import BertCodec


def prepare_embed(
    codec: BertCodec, manifest: TextManifest, texts: Sequence[str], pooling: str | None, normalize: bool | None
) -> Work[TextEmbedding]:
    """Check and tokenize. Pooling is "mean" (over all tokens, [CLS] and [SEP] included) or "cls" (last hidden state of [CLS]).

    What is None is as the bundle has it.

    Raises:
        InvalidInputError: a text is empty or too long, or the pooling is unknown.
    """
    pooling = manifest.pooling if pooling is None else pooling
    normalize = manifest.normalize if normalize is None else normalize
    if pooling not in POOLINGS:
        raise InvalidInputError("pooling", f"{pooling!r} is unknown, it must be one of: {', '.join(POOLINGS)}")
    items = make_items(codec.encode([(text,) for text in texts]), (pooling,))
    return Work(items, partial(_read, items, pooling, normalize), 1_000 * len(items))


def _read(items: Sequence[Item], pooling: str, normalize: bool) -> list[TextEmbedding]:
    vectors = np.stack([item.result[pooling] for item in items])
    if normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return [TextEmbedding(tuple(values), item.size) for values, item in zip(vectors.tolist(), items, strict=True)]
