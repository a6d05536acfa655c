"""A server of the benchmark's own is never left behind."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from triptych_bench.server.process import TriptychServer

STAND_IN = 'echo "ready on 127.0.0.1:1 after 0 s" >&2; exec sleep 60'


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[str]"]:
    """Processes that stand in for servers."""
    processes: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def start(command: Any, **settings: Any) -> "subprocess.Popen[str]":
        processes.append(real(["sh", "-c", STAND_IN], **settings))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return processes


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that nobody has a handler for."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_ends_the_server_too(started: list["subprocess.Popen[str]"], number: int) -> None:
    def killed() -> None:
        with TriptychServer(()) as child:
            assert child.address == "127.0.0.1:1"
            os.kill(os.getpid(), number)
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_so(started: list["subprocess.Popen[str]"]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    try:
        with TriptychServer(()):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
