"""`triptych health`, `load` and `unload` without a server; tests/service has them with one."""

from typing import NoReturn

import click
import grpc
import pytest

from triptych_cli.admin import server

from ...client.fake_server import FakeServer, fail
from ..conftest import Run

NO_SERVER = ("--server", "127.0.0.1:1")


def test_without_a_server_health_is_not_serving(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("health", *NO_SERVER)
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("not serving: UNAVAILABLE: failed to connect")
    monkeypatch.setenv("TRIPTYCH_PORT", "1")
    assert run("health").code == 1
    for seconds in ("0", "nan", "inf"):
        result = run("health", "--timeout-secs", seconds)
        assert (result.code, "--timeout-secs" in result.error) == (2, True)


@pytest.mark.parametrize(
    ("host", "address"),
    [("", "127.0.0.1:7"), ("0.0.0.0", "127.0.0.1:7"), ("::", "127.0.0.1:7"), ("::1", "[::1]:7"), ("127.0.0.2", "127.0.0.2:7")],
)
def test_health_asks_where_the_server_of_this_container_listens(
    run: Run, monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    monkeypatch.setenv("TRIPTYCH_HOST", host)
    monkeypatch.setenv("TRIPTYCH_PORT", "7")
    asked: list[str] = []

    def connect(server: str) -> NoReturn:
        asked.append(server)
        raise click.ClickException("asked")

    monkeypatch.setattr(server, "connect", connect)
    assert run("health").error == "asked"
    assert asked == [address]


@pytest.mark.parametrize("command", ["load", "unload"])
def test_without_a_server_nothing_is_loaded(run: Run, command: str) -> None:
    result = run(command, "toy", *NO_SERVER, "--timeout-secs", "0.5")
    assert (result.code, result.error != "") == (1, True)


def test_the_reason_is_a_model_or_the_key(run: Run) -> None:
    with FakeServer() as server:
        server.set_ready(False)
        server.script = [fail(grpc.StatusCode.UNAUTHENTICATED, "no API key")]
        assert run("health", "--server", server.address).out == "not serving: UNAUTHENTICATED: no API key\n"
        assert run("health", "--server", server.address).out == "not serving: fake version 2 is unknown\n"
        for command in (["models"], ["bench", "fill"]):
            server.script = [fail(grpc.StatusCode.UNAUTHENTICATED, "no API key")]
            error = run(*command, "--server", server.address).error
            assert error.endswith("(give the API key in --api-key-file FILE or the variable TRIPTYCH_API_KEY)")


def test_the_variable_with_a_wrong_address_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_SERVER", "localhost:many")
    assert run("models").error.endswith("the environment variable TRIPTYCH_SERVER has the address localhost:many")
