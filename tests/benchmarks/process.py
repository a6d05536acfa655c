"""Servers and measurements in processes of their own."""

import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

READY = re.compile(r"ready on (\S+)")
NUMBER = re.compile(r"^[0-9.e-]+$")
EXIT_SECONDS = 30.0


class ServerProcess:
    """Started when made; `address` is what it says to be ready on. Leaving the `with` block ends it.

    Args:
        arguments: of the Python interpreter.

    Raises:
        RuntimeError: it ended before it was ready; has what it printed.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.address = _wait_for(self._process, READY)[1]
        threading.Thread(target=self._drain, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End it."""
        _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _drain(self) -> None:
        """A full pipe would stop the server."""
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            pass


class TimerProcess:
    """Started when made; measures something whenever asked to.

    Args:
        arguments: of the Python interpreter; the program answers every line with a number.

    Raises:
        RuntimeError: it ended before it was ready, or did not answer; has what it printed.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, bufsize=1)
        _wait_for(self._process, READY)

    def measure(self) -> float:
        """Ask, and wait for the number."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        return float(_wait_for(self._process, NUMBER)[0])

    def close(self) -> None:
        """End it."""
        _end(self._process)


def _wait_for(process: "subprocess.Popen[str]", pattern: re.Pattern[str]) -> re.Match[str]:
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        if match := pattern.search(line):
            return match
        lines.append(line)
    raise RuntimeError(f"a process ended too early:\n{''.join(lines)}")


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def serve_arguments(repository: str, model: str, precision: str, more: Sequence[str] = ()) -> list[str]:
    """`triptych serve` on a free port."""
    command = ["-m", "triptych_cli", "serve", "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0"]
    return [*command, "--models", repository, "--model", model, "--precision", precision, *more]
