"""Server and command processes, started the way users start them."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_SECONDS = 120.0  # generous, for a busy machine
READY = re.compile(r"ready on (\S+) after")
METRICS = re.compile(r"metrics on http://(\S+)/metrics")
STOPPING = re.compile("stopping: drain delay")
ENDLESS_SECONDS = "3600"  # a drain that waits for its timeout fails the test


def eventually(condition: Callable[[], bool], describe: Callable[[], object] = lambda: "condition never became true") -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.01)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def triptych(*arguments: str | Path) -> list[str]:
    """Build the command line of a `triptych` command."""
    return [sys.executable, "-m", "triptych_cli", *map(str, arguments)]


def clean_environment() -> dict[str, str]:
    """Remove variables that set options; use a free metrics port, so that servers can run side by side.

    What Python compiles is kept, whatever the variables of this process say: it is a third of the start of a server.
    """
    unset = ("TRIPTYCH_", "OTEL_", "GRPC_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    return {**kept, "TRIPTYCH_METRICS_PORT": "0"}


def run_command(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a `triptych` command in a process of its own; the `run` fixture is quicker."""
    return subprocess.run(
        triptych(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env=clean_environment(),
    )


class ServerProcess:
    """Server on a free port; leaving the `with` block stops it and checks for a clean exit.

    Args:
        models: model repository.
        options: further options of `triptych serve`.
    """

    def __init__(self, models: Path, *options: str) -> None:
        command = triptych("serve", "--models", models, "--host", "127.0.0.1", "--port", "0", "--workers", "2", *options)
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.wait_for_log(READY)[1]
        self.port = int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def metrics_address(self) -> str:
        """Address of the metrics and probes, host:port."""
        return self.wait_for_log(METRICS)[1]

    @property
    def log(self) -> str:
        return "\n".join(self._lines)

    def wait_for_log(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait for a match in the log and return the first one."""
        with self._news:
            self._news.wait_for(lambda: pattern.search(self.log) or not self._reader.is_alive(), PATIENCE_SECONDS)
        match = pattern.search(self.log)
        assert match, self.log
        return match

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.signal()
        try:
            code = self.wait()
        finally:
            self._process.kill()
        if kind is None:
            assert code == 0, self.log
            assert "Traceback" not in self.log, self.log

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()
