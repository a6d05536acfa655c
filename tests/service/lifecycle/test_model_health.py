"""Health of services: a service is serving while a model that it needs is loaded."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych_client import Client, ServerError, UnavailableError
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.models.decode_model import DecodeModelOptions

from ...fixtures.encoders import write_image_bundle
from ...fixtures.toy import SOURCE, TARGET, copy_bundle
from ...unit.cli.conftest import Result, Run
from ..support.in_process import OPTIONS, local_server, running_server
from ..support.processes import PATIENCE_SECONDS, ServerProcess

EXPLICIT = ("--model-control", "explicit", "--allow-admin")
Status = health_pb2.HealthCheckResponse
TRANSLATION, IMAGES, FILL_MASK = (f"triptych.v1.{name}Service" for name in ("Translation", "ImageClassification", "FillMask"))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    copy_bundle(tmp_path)
    write_image_bundle(tmp_path)
    return tmp_path


def test_health_command(server: ServerProcess, run: Run) -> None:
    def health(service: str) -> Result:
        return run("health", "--server", server.address, "--service", service)

    assert health("").success == health(TRANSLATION).success == "serving\n"
    assert health("triptych.v1.TextGenerationService").code == 1
    assert health("foo").error.startswith("NOT_FOUND: service 'foo' is unknown")


@contextmanager
def watching(address: str, service: str) -> Iterator["queue.Queue[int]"]:
    """Watch the health of a service; yield a queue of its statuses."""
    heard: queue.Queue[int] = queue.Queue()
    with grpc.insecure_channel(address) as channel:
        call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))

        def listen() -> None:
            try:
                for response in call:
                    heard.put(response.status)
            except grpc.RpcError:
                return

        thread = threading.Thread(target=listen)
        thread.start()
        yield heard
        call.cancel()
        thread.join(PATIENCE_SECONDS)


def test_services_follow_the_loaded_models(models: Path, run: Run) -> None:
    with local_server(models, *EXPLICIT) as server, Client(server.address, retries=0) as client:
        assert client.is_ready()
        assert client.is_ready("triptych.v1.ModelService")
        assert not any(client.is_ready(service) for service in (TRANSLATION, IMAGES, FILL_MASK))
        with watching(server.address, TRANSLATION) as heard, watching(server.address, "") as overall:
            assert heard.get(timeout=PATIENCE_SECONDS) == Status.NOT_SERVING
            client.load_model("toy")
            assert heard.get(timeout=PATIENCE_SECONDS) == Status.SERVING
            assert client.is_ready(TRANSLATION)
            assert not client.is_ready(IMAGES)
            client.load_model("image-classification")
            assert client.is_ready(IMAGES)
            client.unload_model("toy")
            assert heard.get(timeout=PATIENCE_SECONDS) == Status.NOT_SERVING
            assert client.is_ready(IMAGES)
            assert overall.get(timeout=PATIENCE_SECONDS) == Status.SERVING
            assert overall.empty()
            assert heard.empty()
        client.unload_model("image-classification")
        assert run("load", "toy", "--server", server.address).success == "toy version 1: ready\n"
        assert "ready" in run("models", "--server", server.address).success
        assert run("unload", "toy", "--version", "1", "--server", server.address).success == "toy version 1: unloaded\n"
        assert "NOT_FOUND: model 'foo' is not in" in run("load", "foo", "--server", server.address).error


def test_an_engine_that_dies_answers_and_serves_on_or_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SystemExit("out of order")  # no failure of a batch: it ends a thread

    options = replace(OPTIONS, decoders=DecodeModelOptions(engine=EngineOptions(workers=1)))
    with running_server(options) as (address, _), Client(address, retries=0) as client, watching(address, TRANSLATION) as heard:
        assert heard.get(timeout=PATIENCE_SECONDS) == Status.SERVING
        with monkeypatch.context() as patch:
            patch.setattr(GreedyLane, "step", fail)
            with pytest.raises(ServerError, match="out of order"):
                client.translate(SOURCE)
        assert client.translate(SOURCE).text == TARGET
        with monkeypatch.context() as patch:
            patch.setattr(GreedyLane, "step", fail)
            patch.setattr(GreedyLane, "warm_up", fail)
            with pytest.raises(ServerError, match="out of order"):
                client.translate(SOURCE)
            assert heard.get(timeout=PATIENCE_SECONDS) == Status.NOT_SERVING
        with pytest.raises(UnavailableError, match=r"'toy' cannot be served: .* could not be restarted: out of order"):
            client.translate(SOURCE, model="toy")
        with pytest.raises(UnavailableError, match="loading or failed: toy"):
            client.translate(SOURCE)
