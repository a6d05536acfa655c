"""Start of a server: it serves every valid model, or reports in one line why it cannot start."""

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from triptych_cli.main import main
from triptych_client import Client

from ...fixtures.toy import MODELS, SOURCE, TARGET
from ..support.in_process import local_server
from ..support.processes import ServerProcess

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d ")


@pytest.fixture(autouse=True)
def process_settings() -> Iterator[None]:
    """Restore the settings of this process that `triptych serve` changes."""
    root, seconds = logging.getLogger(), sys.getswitchinterval()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.setswitchinterval(seconds)


Refuse = Callable[..., str]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Run a `triptych serve` that cannot start in this process, and return its error line."""
    for name in [name for name in os.environ if name.startswith(("TRIPTYCH_", "OTEL_"))]:
        monkeypatch.delenv(name)

    def run(*arguments: str | Path) -> str:
        command = ["triptych", "serve", "--host", "127.0.0.1", "--metrics-port", "0", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as exit_info:
            main()
        assert exit_info.value.code == 1
        output = capsys.readouterr()
        assert output.out == ""
        assert "Traceback" not in output.err
        [line] = [line for line in output.err.splitlines() if not LOG_LINE.match(line)]
        return line

    return run


def test_occupied_port(server: ServerProcess, refusal: Refuse) -> None:
    line = refusal("--models", MODELS, "--port", str(server.port))
    assert line == f"Error: port {server.port}: cannot listen on 127.0.0.1: Address already in use"
    with Client(server.address) as client:
        assert client.translate(SOURCE).text == TARGET


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--host", "192.0.2.1"], "Error: port 0: cannot listen on 192.0.2.1: "),
        (["--host", "no.such.host.invalid"], "Error: --host 'no.such.host.invalid': "),
        (["--precision", "fp16"], "Error: no model can be served: "),
    ],
    ids=["foreign host", "unknown host", "missing precision"],
)
def test_invalid_option(refusal: Refuse, options: list[str], error: str) -> None:
    assert refusal("--models", MODELS, "--port", "0", *options).startswith(error)


def test_int8_on_ipv6_without_metrics_and_reflection() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    options = ("--host", "::1", "--precision", "int8", "--slots", "3", "--no-metrics", "--no-reflection")
    with local_server(MODELS, *options) as server, Client(server.address) as client:
        assert server.address.startswith("[::1]:")
        assert client.model("toy").precision == "int8"
        assert client.translate(SOURCE).text == TARGET
        assert "metrics on" not in server.log
        with grpc.insecure_channel(server.address) as channel:
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            responses = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
            with pytest.raises(grpc.RpcError) as error:
                next(responses)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
