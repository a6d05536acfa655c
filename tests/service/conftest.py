"""One server for all tests that leave it as they find it."""

from collections.abc import Iterator

import grpc
import pytest

from triptych.v1 import model_pb2_grpc, translation_pb2_grpc

from ..fixtures.toy import MODELS
from .processes import ServerProcess

MAX_MESSAGE_BYTES = 1_000_000


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(MODELS, "--max-message-bytes", str(MAX_MESSAGE_BYTES)) as server:
        yield server


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def translation(channel: grpc.Channel) -> translation_pb2_grpc.TranslationServiceStub:
    """The translation service, without the SDK."""
    return translation_pb2_grpc.TranslationServiceStub(channel)


@pytest.fixture
def models(channel: grpc.Channel) -> model_pb2_grpc.ModelServiceStub:
    """The model service, without the SDK."""
    return model_pb2_grpc.ModelServiceStub(channel)
