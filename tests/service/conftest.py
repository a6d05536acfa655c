"""Fixtures: one server for all tests that do not change it, and its stubs."""

from collections.abc import Iterator

import grpc
import pytest

from triptych.v1 import model_pb2_grpc, translation_pb2_grpc
from triptych_client import Client
from triptych_serving.models.translation.translator import Translator

from ..fixtures.encoders import (
    write_cross_encoder,
    write_every_bundle,
    write_image_tensors_bundle,
    write_tensors_bundle,
    write_text_bundle,
    write_text_tensors_bundle,
    write_words,
)
from ..fixtures.toy import copy_bundle, tamper
from ..unit.cli.conftest import run
from .support.in_process import Pace, running_server
from .support.processes import ServerProcess

__all__ = ["run"]  # a fixture: a command in this process

MAX_MESSAGE_BYTES = 1_000_000


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server process with a model of every task, one of which is damaged."""
    folder = tmp_path_factory.mktemp("models")
    write_every_bundle(folder)
    write_cross_encoder(folder)
    write_words(folder)
    write_tensors_bundle(folder)
    write_image_tensors_bundle(folder)
    write_text_tensors_bundle(folder)
    write_text_bundle(folder, name="pairs", next_sentence=True)
    copy_bundle(folder)
    tamper(copy_bundle(folder, "broken") / "tokenizer.json")
    with ServerProcess(folder, "--max-message-bytes", str(MAX_MESSAGE_BYTES)) as server:
        yield server


@pytest.fixture(scope="session")
def every_model(server: ServerProcess) -> str:
    """Address of the server."""
    return server.address


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of the server, which asks once."""
    with Client(server.address, retries=0) as client:
        yield client


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


@pytest.fixture(scope="session")
def local_toy() -> Iterator[tuple[str, Translator]]:
    """Address and translator of a server in this process, which tests leave idle."""
    with running_server() as found:
        yield found


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """Pace of the servers in this process during a test."""
    return Pace(monkeypatch)


@pytest.fixture
def paced_server(local_toy: tuple[str, Translator], pace: Pace) -> tuple[str, Translator]:
    """Address and translator of the idle server in this process, whose steps `pace` slows down."""
    return local_toy
