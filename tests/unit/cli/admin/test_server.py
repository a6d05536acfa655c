"""`triptych health`, `load` and `unload` without a server; tests/service has them with one."""

import pytest

from ..conftest import Run

NO_SERVER = ("--server", "127.0.0.1:1")


def test_without_a_server_health_is_not_serving(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("health", *NO_SERVER)
    assert (result.code, result.out, result.err) == (1, "not serving\n", "")
    monkeypatch.setenv("TRIPTYCH_PORT", "1")
    assert run("health").code == 1
    result = run("health", "--timeout-secs", "0")
    assert (result.code, "--timeout-secs" in result.error) == (2, True)


@pytest.mark.parametrize("command", ["load", "unload"])
def test_without_a_server_nothing_is_loaded(run: Run, command: str) -> None:
    result = run(command, "toy", *NO_SERVER, "--timeout-secs", "0.5")
    assert (result.code, result.error != "") == (1, True)
