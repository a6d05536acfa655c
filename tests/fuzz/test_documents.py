"""Damaged documents of every format: a real server translates or rejects them and keeps running."""

from collections.abc import Iterator

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych.v1.translation_pb2 import DocumentConfig, TranslateDocumentRequest
from triptych.v1.translation_pb2_grpc import TranslationServiceStub

from ..fixtures.toy import MODELS, SOURCES
from ..service.support.documents import DOCUMENTS
from ..service.support.processes import PATIENCE_SECONDS, ServerProcess
from .messages import damaged
from .test_messages import SETTINGS, assert_well

MANY = 3_000


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, bytes]:
    """Name of a format and a damaged document, sometimes of another format."""
    name = draw(st.sampled_from(sorted(DOCUMENTS)))
    other = draw(st.sampled_from([name, name, name, *sorted(DOCUMENTS)]))
    return name, draw(damaged([DOCUMENTS[other](SOURCES[0], SOURCES[1])]))


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(MODELS) as server:
        yield server


def fault_of(channel: grpc.Channel, name: str, content: bytes) -> tuple[grpc.StatusCode, str] | None:
    """Return the error for a document, or None."""
    requests = [TranslateDocumentRequest(config=DocumentConfig(format=name)), TranslateDocumentRequest(chunk=content)]
    try:
        events = list(TranslationServiceStub(channel).TranslateDocument(iter(requests), timeout=PATIENCE_SECONDS))
    except grpc.RpcError as error:
        return error.code(), error.details()
    assert events[-1].HasField("summary")
    return None


@pytest.mark.full
def test_damaged_documents(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:

        @settings(SETTINGS, max_examples=MANY)
        @given(documents())
        def each(document: tuple[str, bytes]) -> None:
            if fault := fault_of(channel, *document):
                assert fault[0] is grpc.StatusCode.INVALID_ARGUMENT, fault
                assert fault[1].startswith(("document: ", "config.")), fault

        each()
        assert_well(server, channel)
