"""Servers that a benchmark starts always end with it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from triptych_bench.server.process import ServerProcess, TriptychServer
from triptych_bench.target import TargetError

STAND_IN = 'echo "metrics on http://127.0.0.1:2/metrics" >&2; echo "ready on 127.0.0.1:1 after 0 s" >&2; exec sleep 60'


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[str]"]:
    """Replaces servers by a shell, and lists the processes."""
    processes: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def start(command: Any, **settings: Any) -> "subprocess.Popen[str]":
        processes.append(real(["sh", "-c", STAND_IN], **settings))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return processes


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal without a handler."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_ends_the_server(started: list["subprocess.Popen[str]"], number: int) -> None:
    def killed() -> None:
        with TriptychServer(()) as server:
            assert (server.address, server.metrics_url) == ("127.0.0.1:1", "http://127.0.0.1:2/metrics")
            os.kill(os.getpid(), number)
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(number) is signal.SIG_DFL


def test_an_ignored_signal_stays_ignored(started: list["subprocess.Popen[str]"]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
    try:
        with TriptychServer(()):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_any_command_can_be_a_server() -> None:
    code = "import sys, time; print('listening on here:7', file=sys.stderr, flush=True); time.sleep(60)"
    with ServerProcess([sys.executable, "-c", code], re.compile(r"listening on (\S+)")) as server:
        assert server.address == "here:7"
        os.kill(server.pid, 0)
    with pytest.raises(TargetError, match=r"did not start: first \| last"):
        ServerProcess(["sh", "-c", "echo first >&2; echo last >&2"], re.compile("never")).__enter__()
