"""The style rules that other languages' users rely on (buf's STANDARD)."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FileDescriptor, MethodDescriptor

PROTOS = sorted((Path(__file__).resolve().parents[3] / "protos/triptych/v1").glob("*.proto"))
FILES: list[FileDescriptor] = [importlib.import_module(f"triptych.v1.{path.stem}_pb2").DESCRIPTOR for path in PROTOS]
SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
PASCAL_CASE = re.compile(r"([A-Z][a-z0-9]*)+")


def messages_in(parent: FileDescriptor | Descriptor) -> Iterator[Descriptor]:
    nested = parent.message_types_by_name if isinstance(parent, FileDescriptor) else parent.nested_types_by_name
    for message in nested.values():
        yield message
        yield from messages_in(message)


def enums_in(file: FileDescriptor) -> Iterator[EnumDescriptor]:
    yield from file.enum_types_by_name.values()
    for message in messages_in(file):
        yield from message.enum_types


def upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


MESSAGES = [message for file in FILES for message in messages_in(file)]
ENUMS = [enum for file in FILES for enum in enums_in(file)]
SERVICES = [service for file in FILES for service in file.services_by_name.values()]
METHODS = [method for service in SERVICES for method in service.methods]


def full_name(descriptor: MethodDescriptor | EnumDescriptor | Descriptor) -> str:
    return str(descriptor.full_name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_package_is_the_directory(file: FileDescriptor) -> None:
    assert file.package == "triptych.v1"
    assert Path(file.name).parent.as_posix() == "triptych/v1"


def test_services_end_in_service() -> None:
    assert [service.name for service in SERVICES if not service.name.endswith("Service")] == []


@pytest.mark.parametrize("method", METHODS, ids=full_name)
def test_each_rpc_has_its_own_request_and_response(method: MethodDescriptor) -> None:
    assert method.input_type.full_name == f"triptych.v1.{method.name}Request"
    assert method.output_type.full_name == f"triptych.v1.{method.name}Response"


def test_rpc_names_are_unique() -> None:
    assert len({method.name for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize("enum", ENUMS, ids=full_name)
def test_enum_values_have_the_enums_name_and_zero_is_unspecified(enum: EnumDescriptor) -> None:
    prefix = upper_snake(enum.name)
    assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"
    assert [value.name for value in enum.values if not value.name.startswith(f"{prefix}_")] == []


@pytest.mark.parametrize("message", MESSAGES, ids=full_name)
def test_names_have_their_case(message: Descriptor) -> None:
    assert PASCAL_CASE.fullmatch(message.name)
    names = [*message.fields_by_name, *message.oneofs_by_name]
    # The compiler makes a oneof, with an underscore before its name, for each optional field.
    assert [name for name in names if not SNAKE_CASE.fullmatch(name.removeprefix("_"))] == []
