"""Encoder models in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from triptych_cli.encoders.backends import TextOrPair
from triptych_embedded.models import as_backend_errors, open_registry
from triptych_embedded.request import Place
from triptych_serving.bundle.manifest import FILL_MASK, QUESTION_ANSWERING, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from triptych_serving.models.image.image_job import ClassifiedImage
from triptych_serving.models.text.embedding import EMBEDDING, TextEmbedding
from triptych_serving.models.text.fill_mask import FilledText
from triptych_serving.models.text.question_answering import AnsweredQuestion
from triptych_serving.models.text.tasks import (
    EMBEDDING_TASK,
    FILL_MASK_TASK,
    QUESTION_ANSWERING_TASK,
    TEXT_CLASSIFICATION_TASK,
    TOKEN_CLASSIFICATION_TASK,
)
from triptych_serving.models.text.text_classification import ClassifiedText
from triptych_serving.models.text.token_classification import LabelledText
from triptych_serving.repository.registry import ModelSelector, Registry


class EmbeddedEncoders:
    """Loads the model when entered."""

    def __init__(self, place: Place, repository: Path, capability: str) -> None:
        self._place = place
        self._repository = repository
        self._capability = capability
        self._wish = ModelSelector(place.model)

    def __enter__(self) -> Self:
        with as_backend_errors():
            self._registry: Registry = open_registry(self._repository, self._place, self._capability)
        return self

    def __exit__(self, *details: object) -> None:
        self._registry.close(drain=False)

    def fill_mask(self, texts: Sequence[str], top_k: int, targets: Sequence[str]) -> list[FilledText]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, FILL_MASK).run(FILL_MASK_TASK, texts, top_k=top_k, targets=targets)

    def embed(self, texts: Sequence[str], pooling: str | None, normalize: bool | None) -> list[TextEmbedding]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, EMBEDDING).run(
                EMBEDDING_TASK, texts, pooling=pooling, normalize=normalize
            )

    def classify_texts(self, inputs: Sequence[TextOrPair], top_k: int | None) -> list[ClassifiedText]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, TEXT_CLASSIFICATION).run(TEXT_CLASSIFICATION_TASK, inputs, top_k=top_k)

    def classify_tokens(self, texts: Sequence[str], aggregation: str) -> list[LabelledText]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, TOKEN_CLASSIFICATION).run(
                TOKEN_CLASSIFICATION_TASK, texts, aggregation=aggregation
            )

    def answer(self, pairs: Sequence[tuple[str, str]], top_k: int, max_answer_length: int) -> list[AnsweredQuestion]:
        with as_backend_errors():
            return self._registry.find_text(self._wish, QUESTION_ANSWERING).run(
                QUESTION_ANSWERING_TASK, pairs, top_k=top_k, max_answer_length=max_answer_length
            )

    def classify_images(self, images: Sequence[bytes], top_k: int) -> list[ClassifiedImage]:
        with as_backend_errors():
            return self._registry.find_image(self._wish).classify(images, top_k=top_k)
