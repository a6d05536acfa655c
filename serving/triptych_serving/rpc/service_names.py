"""Full names of the services, and which of them a model's capabilities need."""

from typing import Any

from triptych.inference import open_inference_pb2
from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    model_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
    translation_pb2,
)
from triptych_serving.bundle.capability import EMBEDDING
from triptych_serving.bundle.manifest import (
    FILL_MASK,
    IMAGE_CLASSIFICATION,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    TRANSLATION,
)


def _name_of(module: Any) -> str:
    """Of the one service in a file."""
    [service] = module.DESCRIPTOR.services_by_name.values()
    return str(service.full_name)


MODELS = _name_of(model_pb2)
INFERENCE = _name_of(open_inference_pb2)
BY_CAPABILITY = {
    TRANSLATION: _name_of(translation_pb2),
    FILL_MASK: _name_of(fill_mask_pb2),
    EMBEDDING: _name_of(embedding_pb2),
    TEXT_CLASSIFICATION: _name_of(text_classification_pb2),
    TOKEN_CLASSIFICATION: _name_of(token_classification_pb2),
    QUESTION_ANSWERING: _name_of(question_answering_pb2),
    IMAGE_CLASSIFICATION: _name_of(image_classification_pb2),
}
ALL = (*BY_CAPABILITY.values(), MODELS, INFERENCE)


def services_of(capabilities: frozenset[str]) -> list[str]:
    """The services that can be asked for a model."""
    return [name for capability, name in BY_CAPABILITY.items() if capability in capabilities]
