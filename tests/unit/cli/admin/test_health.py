"""`triptych health`, where nobody answers; tests/service has one that does."""

import pytest

from ..conftest import Run

NOBODY = "127.0.0.1:1"


def test_nobody_is_not_serving(run: Run) -> None:
    result = run("health", "--server", NOBODY)
    assert (result.code, result.out, result.err) == (1, "not serving\n", "")


def test_the_port_of_this_container_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_PORT", "1")
    assert run("health").code == 1


def test_no_time_is_no_probe(run: Run) -> None:
    result = run("health", "--timeout-secs", "0")
    assert result.code == 2
    assert "--timeout-secs" in result.error
