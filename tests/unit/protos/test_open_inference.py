"""The protocol's own stubs: what they have in common with tritonclient's, and that both fit into one process."""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

from triptych.inference import open_inference_pb2 as pb

POOL = service_pb2.DESCRIPTOR.pool
SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
THEIRS = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


def messages_in(parent: Descriptor) -> Iterator[Descriptor]:
    yield parent
    for nested in parent.nested_types_by_name.values():
        yield from messages_in(nested)


MESSAGES = [message for top in pb.DESCRIPTOR.message_types_by_name.values() for message in messages_in(top)]


def look(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    group = field.containing_oneof.name if field.containing_oneof else ""
    return field.name, field.number, field.type, field.is_repeated, kind.full_name if kind else "", group


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message.full_name))
def test_every_field_is_tritonclients(message: Descriptor) -> None:
    theirs = POOL.FindMessageTypeByName(message.full_name).fields_by_number
    assert [look(field) for field in message.fields] == [look(theirs[field.number]) for field in message.fields]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message.full_name))
def test_only_the_configuration_has_less_fields(message: Descriptor) -> None:
    theirs = POOL.FindMessageTypeByName(message.full_name)
    if theirs.file.name != model_config_pb2.DESCRIPTOR.name:
        assert len(message.fields) == len(theirs.fields)


def test_the_types_of_data_are_tritonclients() -> None:
    assert pb.DataType.items() == model_config_pb2.DataType.items()


def test_methods_take_and_give_the_same() -> None:
    for method in SERVICE.methods:
        other = THEIRS.methods_by_name[method.name]
        assert (method.input_type.full_name, method.output_type.full_name) == (
            other.input_type.full_name,
            other.output_type.full_name,
        )
        assert (method.client_streaming, method.server_streaming) == (other.client_streaming, other.server_streaming)


def test_what_is_not_offered_is_shared_memory_tracing_and_logs() -> None:
    missing = {method.name for method in THEIRS.methods} - {method.name for method in SERVICE.methods}
    assert {name for name in missing if "SharedMemory" not in name} == {"TraceSetting", "LogSettings"}


def test_the_pools_are_apart() -> None:
    assert pb.DESCRIPTOR.pool is not POOL
    request = pb.ModelInferRequest(model_name="toy", parameters={"seed": pb.InferParameter(uint64_param=2**64 - 1)})
    assert service_pb2.ModelInferRequest.FromString(request.SerializeToString()).parameters["seed"].uint64_param == 2**64 - 1
