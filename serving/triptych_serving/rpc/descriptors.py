"""Names, methods and descriptors of all services. Descriptors are spread over two pools."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import Default, DescriptorPool

from triptych.inference import open_inference_pb2
from triptych.inference.pool import POOL
from triptych.v1 import attention_pb2, model_pb2
from triptych_serving.bundle.manifest import (
    IMAGE_CLASSIFICATION,
    IMAGE_GENERATION,
    IMAGE_SAMPLING,
    TEXT_GENERATION,
    TRANSLATION,
)
from triptych_serving.models.text.tasks import TEXT_TASKS

Found = TypeVar("Found")


def stub_module(capability: str, suffix: str = "_pb2") -> Any:
    """Import the generated module of a capability: "fill-mask" is in `triptych.v1.fill_mask_pb2`."""
    return import_module(f"triptych.v1.{capability.replace('-', '_')}{suffix}")


def _only_service(module: Any) -> ServiceDescriptor:
    [service] = module.DESCRIPTOR.services_by_name.values()
    return service  # type: ignore[no-any-return]


MODEL_SERVICE = _only_service(model_pb2).full_name
ATTENTION_SERVICE = _only_service(attention_pb2).full_name
INFERENCE_SERVICE = _only_service(open_inference_pb2).full_name
CAPABILITIES = (TRANSLATION, *TEXT_TASKS, IMAGE_CLASSIFICATION, TEXT_GENERATION, IMAGE_GENERATION)
DESCRIPTOR_BY_CAPABILITY = {name: _only_service(stub_module(name)) for name in CAPABILITIES}
DESCRIPTOR_BY_CAPABILITY[IMAGE_SAMPLING] = DESCRIPTOR_BY_CAPABILITY[IMAGE_GENERATION]
SERVICE_BY_CAPABILITY = {name: service.full_name for name, service in DESCRIPTOR_BY_CAPABILITY.items()}
ALL_SERVICES = (*dict.fromkeys(SERVICE_BY_CAPABILITY.values()), ATTENTION_SERVICE, MODEL_SERVICE, INFERENCE_SERVICE)


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
