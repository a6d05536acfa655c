"""Fixtures: one server for all tests that do not change it, and its stubs."""

from collections.abc import Iterator

import grpc
import pytest

from triptych.v1 import model_pb2_grpc, translation_pb2_grpc
from triptych_serving.models.translation.translator import Translator

from ..fixtures.toy import MODELS
from ..unit.cli.conftest import run
from .support.in_process import Pace, running_server
from .support.processes import ServerProcess

__all__ = ["run"]  # a fixture: a command in this process

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
    """Stub of the translation service, without the client library."""
    return translation_pb2_grpc.TranslationServiceStub(channel)


@pytest.fixture
def models(channel: grpc.Channel) -> model_pb2_grpc.ModelServiceStub:
    """Stub of the model service, without the client library."""
    return model_pb2_grpc.ModelServiceStub(channel)


@pytest.fixture(scope="module")
def paced_server() -> Iterator[tuple[str, Translator, Pace]]:
    """Address, translator and pace of a server in this process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        pace = Pace(monkeypatch)
        with running_server() as (address, translator):
            yield address, translator, pace


@pytest.fixture
def pace(paced_server: tuple[str, Translator, Pace]) -> Pace:
    pace = paced_server[2]
    pace.steps = 0
    pace.slow.clear()
    return pace
