"""Several server processes on the same ports, as one server."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deepl
import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub

from ...fixtures.toy import MODELS, SOURCE, SOURCES, TARGET
from ..support.processes import ENDLESS_SECONDS, PATIENCE_SECONDS, ServerProcess, clean_environment, eventually, run_command
from ..support.telemetry import Scrape, fetch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT spreads connections on Linux only")
GATEWAY = re.compile(r"HTTP gateway on (\S+)")
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
COUNT = 2


@contextmanager
def stubs(address: str) -> Iterator[TranslationServiceStub]:
    """A stub with a connection of its own."""
    with grpc.insecure_channel(address, OWN_CONNECTION) as channel:
        yield TranslationServiceStub(channel)


def ask(address: str) -> str:
    """Translate over a new connection."""
    with stubs(address) as stub:
        [found] = stub.Translate(translation_pb2.TranslateRequest(contents=[SOURCE])).translations
        return str(found.translated_text)


def served(metrics: str) -> dict[str, float]:
    """Return the number of translations by process."""
    found = Scrape(metrics).series("requests_total")
    return {
        dict(labels)["process"]: value
        for labels, value in found.items()
        if ("method", "triptych.v1.TranslationService/Translate") in labels
    }


@pytest.fixture(scope="module")
def group() -> Iterator[ServerProcess]:
    """Processes that end without an error when they are asked to."""
    with ServerProcess(MODELS, "--processes", str(COUNT), "--http-port", "0") as server:
        yield server


def test_every_process_serves_and_is_measured(group: ServerProcess) -> None:
    metrics, asked = group.metrics_address, 0

    def all_have_served() -> bool:
        nonlocal asked
        assert ask(group.address) == TARGET
        asked += 1
        return len(served(metrics)) == COUNT

    eventually(all_have_served)
    assert sum(served(metrics).values()) == asked
    assert fetch(metrics, "/readyz").text == "ready\n"
    assert fetch(metrics, "/healthz").text == "live\n"
    assert fetch(metrics, "/metrics", Accept="application/openmetrics-text; version=1.0.0").text.endswith("# EOF\n")
    assert Scrape(metrics).value("ready", process="1") == 1
    assert "[process=1]" in group.log


def test_a_document_is_fetched_from_whatever_process(group: ServerProcess, tmp_path: Path) -> None:
    address = group.wait_for_log(GATEWAY)[1]
    for number in range(8):
        client = deepl.DeepLClient("key", server_url=address, verify_ssl=False)
        handle = client.translate_document_upload(SOURCE, filename="a.txt", target_lang="DE", source_lang="EN")
        done = deepl.DeepLClient("key", server_url=address)  # another connection

        def is_done(done: deepl.DeepLClient = done, handle: deepl.DocumentHandle = handle) -> bool:
            return done.translate_document_get_status(handle).done

        eventually(is_done)
        target = tmp_path / str(number)
        with target.open("wb") as file:
            deepl.DeepLClient("key", server_url=address).translate_document_download(handle, file)
        assert target.read_text() == TARGET


def test_another_server_cannot_share_the_port(group: ServerProcess) -> None:
    for more in ((), ("--processes", "2")):
        port = group.address.rpartition(":")[2]
        done = run_command("serve", "--models", MODELS, "--host", "127.0.0.1", "--port", port, *more)
        assert done.returncode == 1
        assert f"port {port}: cannot listen on 127.0.0.1: Address already in use" in done.stderr


def test_calls_in_flight_are_finished() -> None:
    with (
        ServerProcess(MODELS, "--processes", "2", "--exit-timeout-secs", ENDLESS_SECONDS) as server,
        stubs(server.address) as stub,
    ):
        events = stub.TranslateStream(translation_pb2.TranslateStreamRequest(contents=SOURCES[:20]))
        first = next(events)
        server.signal()
        assert sum(event.WhichOneof("event") == "result" for event in [first, *events]) == 20
        assert server.wait() == 0


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGKILL, "by signal 9"), (signal.SIGTERM, "with exit code 0")])
def test_processes_end_together(number: signal.Signals, reason: str) -> None:
    server = ServerProcess(MODELS, "--processes", "3")
    others = [child.pid for child in psutil.Process(server.pid).children()]
    assert len(others) == 3
    os.kill(others[1], number)
    assert server.wait() == 1
    assert re.search(f"process . ended {reason}, stopping the others", server.log)
    assert not any(map(psutil.pid_exists, others))


def test_no_process_outlives_the_supervisor() -> None:
    server = ServerProcess(MODELS, "--processes", "2")
    others = [child.pid for child in psutil.Process(server.pid).children()]
    server.signal(signal.SIGKILL)
    server.wait()
    eventually(lambda: not any(map(psutil.pid_exists, others)))


def test_processes_that_cannot_start_are_reported(tmp_path: Path) -> None:
    done = run_command("serve", "--models", tmp_path / "missing", "--host", "127.0.0.1", "--port", "0", "--processes", "2")
    assert done.returncode == 1
    assert "missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_modules_of_the_current_folder_replace_none(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise SystemExit('a module of the current folder')")
    options = "--models", str(tmp_path / "missing"), "--host", "127.0.0.1", "--port", "0", "--processes", "2"
    command = [sys.executable, "-P", "-m", "triptych_cli", "serve", *options]  # as the script `triptych`
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert "a module of the current folder" not in done.stderr
    assert "missing" in done.stderr


def test_health_is_that_of_all(tmp_path: Path) -> None:
    with ServerProcess(MODELS, "--processes", "2", "--drain-delay-secs", "2") as server:
        request = health_pb2.HealthCheckRequest()
        with grpc.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            assert stub.Check(request).status == health_pb2.HealthCheckResponse.SERVING
            server.signal()
            eventually(lambda: stub.Check(request).status == health_pb2.HealthCheckResponse.NOT_SERVING)
            assert fetch(server.metrics_address, "/readyz").text == "process 0: not ready\n"
            assert fetch(server.metrics_address, "/healthz").status == 200
