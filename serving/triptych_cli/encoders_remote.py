"""Encoder models of a server."""

from collections.abc import Sequence
from typing import Self

from triptych_cli.backend import Place
from triptych_cli.remote import as_backend_errors
from triptych_client import ClassifiedImage, Client, Embedding, FilledText, Pooling


class RemoteEncoders:
    """Asks the server at `place.server`."""

    def __init__(self, place: Place) -> None:
        self._client = Client(place.server)
        self._model = place.model or None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._client.close()

    def fill_mask(self, texts: Sequence[str], top_k: int, targets: Sequence[str]) -> Sequence[FilledText]:
        with as_backend_errors():
            return self._client.fill_mask_many(texts, top_k=top_k, targets=targets, model=self._model)

    def embed(self, texts: Sequence[str], pooling: str, normalize: bool) -> Sequence[Embedding]:
        with as_backend_errors():
            return self._client.embed_many(texts, pooling=Pooling(pooling), normalize=normalize, model=self._model)

    def classify_images(self, images: Sequence[bytes], top_k: int) -> Sequence[ClassifiedImage]:
        with as_backend_errors():
            return self._client.classify_image_many(images, top_k=top_k, model=self._model)
