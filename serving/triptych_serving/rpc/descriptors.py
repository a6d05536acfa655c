"""The descriptors of all services, for those who look them up by name: they are in two pools."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import Default, DescriptorPool

from triptych.inference.pool import POOL

Found = TypeVar("Found")


class Descriptors:
    """What of a DescriptorPool's interface reflection needs; the first pool that knows a name answers. KeyError: none does."""

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
        return find(POOL)  # first: what another package has of the same name is not what this server offers
    except KeyError:
        return find(Default())
