"""Encoder models of a server."""

from collections.abc import Sequence
from typing import Self

from triptych_cli.common.connection import connect
from triptych_cli.encoders.backends import TextOrPair
from triptych_cli.translation.remote import as_backend_errors
from triptych_client import (
    Aggregation,
    AnsweredQuestion,
    ClassifiedImage,
    ClassifiedText,
    Embedding,
    FilledText,
    LabelledText,
    Pooling,
)
from triptych_embedded.request import Place


class RemoteEncoders:
    """Asks the server at `place.server`."""

    def __init__(self, place: Place) -> None:
        self._client = connect(place.server)
        self._model = place.model or None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._client.close()

    def fill_mask(self, texts: Sequence[str], top_k: int, targets: Sequence[str]) -> Sequence[FilledText]:
        with as_backend_errors():
            return self._client.fill_mask_many(texts, top_k=top_k, targets=targets, model=self._model)

    def embed(self, texts: Sequence[str], pooling: str | None, normalize: bool | None) -> Sequence[Embedding]:
        with as_backend_errors():
            chosen = None if pooling is None else Pooling(pooling)
            return self._client.embed_many(texts, pooling=chosen, normalize=normalize, model=self._model)

    def classify_texts(self, inputs: Sequence[TextOrPair], top_k: int | None) -> Sequence[ClassifiedText]:
        with as_backend_errors():
            return self._client.classify_text_many(inputs, top_k=top_k, model=self._model)

    def classify_tokens(self, texts: Sequence[str], aggregation: str) -> Sequence[LabelledText]:
        with as_backend_errors():
            return self._client.classify_tokens_many(texts, aggregation=Aggregation(aggregation), model=self._model)

    def answer(self, pairs: Sequence[tuple[str, str]], top_k: int, max_answer_length: int) -> Sequence[AnsweredQuestion]:
        with as_backend_errors():
            return self._client.answer_many(pairs, top_k=top_k, max_answer_length=max_answer_length, model=self._model)

    def classify_images(self, images: Sequence[bytes], top_k: int) -> Sequence[ClassifiedImage]:
        with as_backend_errors():
            return self._client.classify_image_many(images, top_k=top_k, model=self._model)
