"""Encoder models in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from triptych_cli.encoders.backends import TextOrPair
from triptych_embedded.models import as_backend_errors, open_registry
from triptych_embedded.request import Place
from triptych_serving.bundle.capability import EMBEDDING
from triptych_serving.bundle.manifest import FILL_MASK, QUESTION_ANSWERING, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from triptych_serving.models.results import (
    AnsweredQuestion,
    ClassifiedImage,
    ClassifiedText,
    FilledText,
    LabelledText,
    TextEmbedding,
)
from triptych_serving.repository.registry import Registry, Wish


class EmbeddedEncoders:
    """Loads the model when entered."""

    def __init__(self, place: Place, repository: Path, capability: str) -> None:
        self._place = place
        self._repository = repository
        self._capability = capability
        self._wish = Wish(place.model)

    def __enter__(self) -> Self:
        with as_backend_errors():
            self._registry: Registry = open_registry(self._repository, self._place, self._capability)
        return self

    def __exit__(self, *details: object) -> None:
        self._registry.close(drain=False)

    def fill_mask(self, texts: Sequence[str], top_k: int, targets: Sequence[str]) -> list[FilledText]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, FILL_MASK).fill_mask(texts, top_k=top_k, targets=targets)

    def embed(self, texts: Sequence[str], pooling: str | None, normalize: bool | None) -> list[TextEmbedding]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, EMBEDDING).embed(texts, pooling=pooling, normalize=normalize)

    def classify_texts(self, inputs: Sequence[TextOrPair], top_k: int | None) -> list[ClassifiedText]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, TEXT_CLASSIFICATION).classify(inputs, top_k)

    def classify_tokens(self, texts: Sequence[str], aggregation: str) -> list[LabelledText]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, TOKEN_CLASSIFICATION).classify_tokens(texts, aggregation)

    def answer(self, pairs: Sequence[tuple[str, str]], top_k: int, max_answer_length: int) -> list[AnsweredQuestion]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, QUESTION_ANSWERING).answer(pairs, top_k, max_answer_length)

    def classify_images(self, images: Sequence[bytes], top_k: int) -> list[ClassifiedImage]:
        with as_backend_errors():
            return self._registry.find_image(self._wish).classify(images, top_k=top_k)
