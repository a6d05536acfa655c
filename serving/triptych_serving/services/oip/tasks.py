"""All tasks, and which of them a request means."""

from collections.abc import Mapping
from typing import Any

from triptych_serving.bundle import manifest
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.model import Model
from triptych_serving.models.text import embedding
from triptych_serving.services.oip.embedding import EMBEDDING
from triptych_serving.services.oip.fill_mask import FILL_MASK
from triptych_serving.services.oip.image_classification import IMAGE_CLASSIFICATION
from triptych_serving.services.oip.question_answering import QUESTION_ANSWERING
from triptych_serving.services.oip.task import Task
from triptych_serving.services.oip.text_classification import TEXT_CLASSIFICATION
from triptych_serving.services.oip.token_classification import TOKEN_CLASSIFICATION
from triptych_serving.services.oip.translation import TRANSLATION

TASKS: Mapping[str, Task] = {
    manifest.TRANSLATION: TRANSLATION,
    manifest.FILL_MASK: FILL_MASK,
    embedding.EMBEDDING: EMBEDDING,
    manifest.TEXT_CLASSIFICATION: TEXT_CLASSIFICATION,
    manifest.TOKEN_CLASSIFICATION: TOKEN_CLASSIFICATION,
    manifest.QUESTION_ANSWERING: QUESTION_ANSWERING,
    manifest.IMAGE_CLASSIFICATION: IMAGE_CLASSIFICATION,
}
PARAMETER = "task"


def names_of(model: Model) -> list[str]:
    """The tasks that a model can do; first the one that it does unless a request says otherwise."""
    own = model.manifest.task
    return sorted(model.capabilities, key=lambda name: (name != own, list(TASKS).index(name)))


def name_from(given: Any, model: Model) -> str:
    """The task that a request means; None: it does not say.

    Raises:
        InvalidInputError: the model has no such task.
    """
    names = names_of(model)
    if given is None:
        return names[0]
    if given not in names:
        raise InvalidInputError(f"parameters.{PARAMETER}", f"{given!r} is none of the model's; it has: {', '.join(names)}")
    return str(given)
