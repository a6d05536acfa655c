"""Calls from the shell without protos, as in protos/README.md: with grpcurl, if it is installed, and with `buf curl`."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..fixtures.encoders import write_every_bundle
from ..fixtures.toy import SOURCE, TARGET, copy_bundle
from ..service.support.processes import PATIENCE_SECONDS, ServerProcess

pytestmark = pytest.mark.full

Curl = Callable[[str, dict[str, Any]], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = tmp_path_factory.mktemp("models")
    write_every_bundle(repository)
    copy_bundle(repository)
    with ServerProcess(repository) as server:
        yield server.address


@pytest.fixture(params=["grpcurl", "buf curl"])
def curl(request: pytest.FixtureRequest, address: str) -> Curl:
    """Calls a method with JSON, using reflection."""
    if request.param == "buf curl":
        buf = request.getfixturevalue("buf")
        return lambda method, body: _run(
            buf, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "-d", json.dumps(body), f"http://{address}/{method}"
        )
    grpcurl = shutil.which("grpcurl")
    if grpcurl is None:
        pytest.skip("grpcurl is not installed")
    return lambda method, body: _run(grpcurl, "-plaintext", "-d", json.dumps(body), address, method)


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def answers(result: "subprocess.CompletedProcess[str]") -> list[Any]:
    """Parse consecutive JSON documents."""
    assert result.returncode == 0, result.stderr
    text, found = result.stdout.strip(), []
    while text:
        answer, end = json.JSONDecoder().raw_decode(text)
        found.append(answer)
        text = text[end:].strip()
    return found


def test_translate(curl: Curl) -> None:
    body = {"contents": [SOURCE], "target_language_code": "de"}
    [response] = answers(curl("triptych.v1.TranslationService/Translate", body))
    assert response["translations"][0]["translatedText"] == TARGET


def test_stream(curl: Curl) -> None:
    events = answers(curl("triptych.v1.TranslationService/TranslateStream", {"contents": [SOURCE]}))
    assert "".join(event["piece"]["text"] for event in events if "piece" in event) == TARGET
    assert events[-1]["summary"]["model"] == "toy"


def test_fill_masks_with_options_in_snake_case(curl: Curl) -> None:
    [response] = answers(curl("triptych.v1.FillMaskService/FillMask", {"contents": ["one two [MASK]"], "top_k": 1}))
    assert response["results"][0]["masks"][0]["candidates"][0]["sequence"] == "one two three"


def test_health(curl: Curl) -> None:
    assert answers(curl("grpc.health.v1.Health/Check", {})) == [{"status": "SERVING"}]


def test_errors(curl: Curl) -> None:
    result = curl("triptych.v1.TranslationService/Translate", {"contents": [" "]})
    assert result.returncode != 0
    assert "contents[0]: the text is empty" in result.stderr


def test_list_services(address: str) -> None:
    grpcurl = shutil.which("grpcurl")
    if grpcurl is None:
        pytest.skip("grpcurl is not installed")
    services = _run(grpcurl, "-plaintext", address, "list").stdout.split()
    assert {"triptych.v1.TranslationService", "grpc.health.v1.Health"} <= set(services)


def test_buf_lists_methods(address: str, buf: str) -> None:
    result = _run(buf, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--list-methods", f"http://{address}")
    assert result.returncode == 0, result.stderr
    assert "triptych.v1.TranslationService/Translate" in result.stdout.split()
