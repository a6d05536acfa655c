"""Starting: a server serves what it can, or says in one line why it cannot."""

import re
import socket
import subprocess
from pathlib import Path

import pytest

from triptych_client import Client, ModelState, UnavailableError

from ..fixtures.toy import MODELS, SOURCE, TARGET, copy_bundle, tamper, truncate
from .processes import PATIENCE_SECONDS, ServerProcess, clean_environment, triptych

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d ")


def refusal(*arguments: str | Path) -> str:
    """What a server that cannot start says, beside its log."""
    command = triptych("serve", "--host", "127.0.0.1", *arguments)
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=clean_environment()
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    [line] = [line for line in result.stderr.splitlines() if not LOG_LINE.match(line)]
    return line


def test_an_occupied_port_is_named(server: ServerProcess) -> None:
    line = refusal("--models", MODELS, "--port", str(server.port))
    assert line == f"Error: port {server.port}: cannot listen on 127.0.0.1: Address already in use"
    with Client(server.address) as client:
        assert client.translate(SOURCE).text == TARGET


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_is_named(host: str) -> None:
    line = refusal("--models", MODELS, "--port", "0", "--host", host)
    assert line.startswith(f"Error: port 0: cannot listen on {host}: ")


def test_a_missing_repository_is_named(tmp_path: Path) -> None:
    line = refusal("--models", tmp_path / "missing", "--port", "0")
    assert line == f"Error: {tmp_path / 'missing'}: no such model repository"


def test_an_empty_repository_is_named(tmp_path: Path) -> None:
    line = refusal("--models", tmp_path, "--port", "0")
    assert line.startswith(f"Error: {tmp_path}: no models here")


def test_an_unknown_model_is_named() -> None:
    line = refusal("--models", MODELS, "--port", "0", "--model", "foo")
    assert line == f"Error: model 'foo' is not in {MODELS}; available: toy"


def test_an_unknown_precision_names_those_that_are_there() -> None:
    line = refusal("--models", MODELS, "--port", "0", "--precision", "fp16")
    assert "precision 'fp16' is not in this bundle; it has: fp32, int8" in line


def test_without_a_whole_bundle_there_is_no_server(tmp_path: Path) -> None:
    fault = truncate(copy_bundle(tmp_path, "first") / "weights.fp32.bin")
    tamper(copy_bundle(tmp_path, "second") / "tokenizer.json")
    line = refusal("--models", tmp_path, "--port", "0")
    assert line.startswith("Error: no model can be served: ")
    assert fault in line
    assert "tokenizer.json does not have its recorded SHA-256" in line


def test_damaged_bundles_do_not_stop_a_whole_one(tmp_path: Path) -> None:
    copy_bundle(tmp_path, "good")
    fault = truncate(copy_bundle(tmp_path, "truncated") / "weights.fp32.bin")
    tamper(copy_bundle(tmp_path, "tampered") / "tokenizer.json")
    with ServerProcess(tmp_path) as server, Client(server.address, retries=0) as client:
        assert client.translate(SOURCE).text == client.translate(SOURCE, model="good").text == TARGET
        states = {model.name: model for model in client.models()}
        assert {name: model.state for name, model in states.items()} == {
            "good": ModelState.READY,
            "tampered": ModelState.FAILED,
            "truncated": ModelState.FAILED,
        }
        assert "SHA-256" in states["tampered"].state_message
        assert fault in client.model("truncated").state_message
        with pytest.raises(UnavailableError, match="model 'truncated' could not be loaded"):
            client.translate(SOURCE, model="truncated")


def test_an_ipv6_address() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with ServerProcess(MODELS, "--host", "::1") as server, Client(server.address) as client:
        assert server.address.startswith("[::1]:")
        assert client.translate(SOURCE).text == TARGET


def test_int8_is_served_on_request() -> None:
    with ServerProcess(MODELS, "--precision", "int8", "--slots", "3") as server, Client(server.address) as client:
        assert client.model("toy").precision == "int8"
        assert client.translate(SOURCE).text == TARGET
