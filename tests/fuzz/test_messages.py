"""Malformed requests of both protocols and damaged documents: a real server returns the right status and keeps running."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych.v1 import model_pb2, translation_pb2
from triptych.v1.model_pb2_grpc import ModelServiceStub
from triptych.v1.translation_pb2_grpc import TranslationServiceStub

from ..fixtures.encoders import write_cross_encoder, write_every_bundle, write_words
from ..fixtures.toy import SOURCE, SOURCES, TARGET, copy_bundle
from ..service.support.documents import DOCUMENTS
from ..service.support.in_process import LocalServer, local_server
from ..service.support.messages import METHODS
from ..service.support.processes import PATIENCE_SECONDS, ServerProcess
from .messages import GOOD, Values, damaged, wire

CODE = grpc.StatusCode
# Allowed statuses for arbitrary requests. INTERNAL and UNKNOWN are faults of the server; DEADLINE_EXCEEDED means it hangs.
EXPECTED = {
    CODE.OK,
    CODE.INVALID_ARGUMENT,
    CODE.NOT_FOUND,
    CODE.FAILED_PRECONDITION,
    CODE.RESOURCE_EXHAUSTED,
    CODE.PERMISSION_DENIED,
}
REQUESTS = {method.full_name: wire(method.input_type) for method in METHODS.values()}
FEW, MANY = 150, 10_000
SETTINGS = settings(derandomize=False, suppress_health_check=list(HealthCheck), database=None, print_blob=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_every_bundle(folder)
    write_cross_encoder(folder)
    write_words(folder)
    copy_bundle(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[LocalServer]:
    with local_server(repository, "--response-cache-bytes", "1000000", "--deduplicate") as server:
        yield server


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as channel:
        yield channel


def code_of(channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes]) -> tuple[grpc.StatusCode, str]:
    """Send bytes, read all responses, and return the final status with its message."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            answers = list(channel.stream_stream(path)(iter(requests), timeout=PATIENCE_SECONDS))
            assert not any(b"internal error" in answer for answer in answers)  # these streams go on after one
        elif method.server_streaming:
            list(channel.unary_stream(path)(requests[0], timeout=PATIENCE_SECONDS))
        else:
            channel.unary_unary(path)(requests[0], timeout=PATIENCE_SECONDS)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return CODE.OK, ""


@st.composite
def calls(draw: st.DrawFn) -> tuple[MethodDescriptor, list[bytes]]:
    method = draw(st.sampled_from(list(METHODS.values())))
    most = 5 if method.client_streaming else 1
    return method, draw(st.lists(REQUESTS[method.full_name], min_size=1, max_size=most))


def send(channel: grpc.Channel, call: tuple[MethodDescriptor, list[bytes]]) -> None:
    code, details = code_of(channel, *call)
    assert code in EXPECTED, details
    assert code is CODE.OK or details
    assert len(details.splitlines()) <= 1


def assert_well(server: LocalServer | ServerProcess, channel: grpc.Channel) -> None:
    """Check that the server still translates and has logged no traceback."""
    request = translation_pb2.TranslateRequest(contents=[SOURCE], model="toy")
    response = TranslationServiceStub(channel).Translate(request, timeout=PATIENCE_SECONDS)
    assert response.translations[0].translated_text == TARGET
    assert "Traceback" not in server.log, server.log


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_malformed_requests(server: LocalServer, channel: grpc.Channel, count: int) -> None:
    @settings(SETTINGS, max_examples=count, derandomize=count == FEW)
    @given(calls())
    def each(call: tuple[MethodDescriptor, list[bytes]]) -> None:
        send(channel, call)

    each()
    assert_well(server, channel)


@pytest.mark.full
def test_many_malformed_requests_while_models_come_and_go(repository: Path) -> None:
    """Requests that load and unload models are included."""
    flags = "--model-control", "explicit", "--allow-admin", "--load-model", "*"
    with ServerProcess(repository, *flags) as server, grpc.insecure_channel(server.address) as channel:

        @settings(SETTINGS, max_examples=MANY // 4)
        @given(calls())
        def each(call: tuple[MethodDescriptor, list[bytes]]) -> None:
            send(channel, call)

        each()
        ModelServiceStub(channel).LoadModel(model_pb2.LoadModelRequest(name="toy"), timeout=PATIENCE_SECONDS)
        assert_well(server, channel)


GOOD_CALLS = [(method, values) for method in METHODS.values() for values in GOOD.get(method.input_type.name, [])]


@pytest.mark.parametrize(("method", "values"), GOOD_CALLS, ids=lambda one: getattr(one, "full_name", ""))
def test_good_requests_are_good(channel: grpc.Channel, method: MethodDescriptor, values: Values) -> None:
    """Nearly valid requests are derived from valid ones."""
    request = GetMessageClass(method.input_type)(**values)
    assert code_of(channel, method, [request.SerializeToString()]) == (CODE.OK, "")


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, bytes]:
    """Name of a format and a damaged document, sometimes of another format."""
    name = draw(st.sampled_from(sorted(DOCUMENTS)))
    other = draw(st.sampled_from([name, name, name, *sorted(DOCUMENTS)]))
    return name, draw(damaged([DOCUMENTS[other](SOURCES[0], SOURCES[1])]))


def fault_of(channel: grpc.Channel, name: str, content: bytes) -> tuple[grpc.StatusCode, str] | None:
    """Return the error for a document, or None."""
    config = translation_pb2.DocumentConfig(format=name)
    make = translation_pb2.TranslateDocumentRequest
    requests = [make(config=config), make(chunk=content)]
    try:
        events = list(TranslationServiceStub(channel).TranslateDocument(iter(requests), timeout=PATIENCE_SECONDS))
    except grpc.RpcError as error:
        return error.code(), error.details()
    assert events[-1].HasField("summary")
    return None


@pytest.mark.full
def test_damaged_documents(server: LocalServer, channel: grpc.Channel) -> None:
    @settings(SETTINGS, max_examples=MANY // 3)
    @given(documents())
    def each(document: tuple[str, bytes]) -> None:
        if fault := fault_of(channel, *document):
            assert fault[0] is CODE.INVALID_ARGUMENT, fault
            assert fault[1].startswith(("document: ", "config.")), fault

    each()
    assert_well(server, channel)
