"""Names, methods and descriptors of all services. Descriptors are spread over two pools."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import Default, DescriptorPool

from triptych.inference import open_inference_pb2
from triptych.inference.pool import POOL
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
from triptych_serving.bundle.manifest import (
    FILL_MASK,
    IMAGE_CLASSIFICATION,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    TRANSLATION,
)
from triptych_serving.models.text.embedding import EMBEDDING

Found = TypeVar("Found")


def _only_service(module: Any) -> str:
    [service] = module.DESCRIPTOR.services_by_name.values()
    return str(service.full_name)


MODEL_SERVICE = _only_service(model_pb2)
INFERENCE_SERVICE = _only_service(open_inference_pb2)
SERVICE_BY_CAPABILITY = {
    TRANSLATION: _only_service(translation_pb2),
    FILL_MASK: _only_service(fill_mask_pb2),
    EMBEDDING: _only_service(embedding_pb2),
    TEXT_CLASSIFICATION: _only_service(text_classification_pb2),
    TOKEN_CLASSIFICATION: _only_service(token_classification_pb2),
    QUESTION_ANSWERING: _only_service(question_answering_pb2),
    IMAGE_CLASSIFICATION: _only_service(image_classification_pb2),
}
ALL_SERVICES = (*SERVICE_BY_CAPABILITY.values(), MODEL_SERVICE, INFERENCE_SERVICE)


def services_of(capabilities: frozenset[str]) -> list[str]:
    """List the services that a model with these capabilities can serve."""
    return [name for capability, name in SERVICE_BY_CAPABILITY.items() if capability in capabilities]


def methods_of(services: Iterable[str]) -> list[str]:
    """List the full names of the methods of services, such as "triptych.v1.TranslationService/Translate"."""
    return [f"{name}/{method.name}" for name in services for method in DESCRIPTORS.FindServiceByName(name).methods]


class Descriptors:
    """The part of DescriptorPool's interface that reflection needs; raises KeyError where neither pool knows a name."""

    def FindFileByName(self, name: str) -> FileDescriptor:
        return _first(lambda pool: pool.FindFileByName(name))

    def FindFileContainingSymbol(self, name: str) -> FileDescriptor:
        return _first(lambda pool: pool.FindFileContainingSymbol(name))

    def FindMessageTypeByName(self, name: str) -> Descriptor:
        return _first(lambda pool: pool.FindMessageTypeByName(name))

    def FindServiceByName(self, name: str) -> ServiceDescriptor:
        return _first(lambda pool: pool.FindServiceByName(name))

    def FindExtensionByNumber(self, message: Descriptor, number: int) -> FieldDescriptor:
        return message.file.pool.FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Descriptor) -> list[FieldDescriptor]:
        return list(message.file.pool.FindAllExtensions(message))


DESCRIPTORS = Descriptors()


def _first(find: Callable[[DescriptorPool], Found]) -> Found:
    try:
        return find(POOL)  # first, because another package may have put its own types of the same names into the default pool
    except KeyError:
        return find(Default())
