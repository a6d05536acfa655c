"""Processes of servers that end with the benchmark."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Self

from triptych_bench.target import TargetError

READY = re.compile(r"ready on (\S+) after")
METRICS = re.compile(r"metrics on (http://\S+/metrics)")
START_SECONDS = 600.0
EXIT_SECONDS = 15.0
ERROR = "Error: "
SHOWN_LINES = 3  # of the log of a server that did not start
OWN_VARIABLES = ("TRIPTYCH_", "OTEL_")
ENDING = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]  # Windows has one


class ServerProcess:
    """A server that runs for the duration of the `with` block, even if a signal ends this process.

        with ServerProcess(["my-server", "--port", "0"], re.compile(r"listening on (\\S+)")) as server:
            measure(server.address)

    Args:
        command: Program and arguments.
        ready: Pattern in a line of standard error that says the server is ready; its first group is `address`.
        environment: Environment variables; by default those of this process.

    Raises:
        TargetError: The server did not start; the message has its last lines.
    """

    def __init__(self, command: Sequence[str], ready: re.Pattern[str], environment: Mapping[str, str] | None = None) -> None:
        self._command, self._pattern, self._environment = list(command), ready, environment
        self._lines: deque[str] = deque(maxlen=100)
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._previous_handlers: dict[int, Any] = {}
        self.address = ""

    @property
    def pid(self) -> int:
        """Process ID; 0 before the start."""
        return self._process.pid if self._process else 0

    def line(self, text: str) -> None:
        """Process a line of standard error."""
        if ready := self._pattern.search(text):
            self.address = ready[1]
            self._ready.set()

    def __enter__(self) -> Self:
        self._handle_signals()
        try:
            # In its own session: Ctrl-C is for the benchmark, which still queries the server afterwards.
            self._process = subprocess.Popen(
                self._command, stderr=subprocess.PIPE, text=True, env=self._environment, start_new_session=True
            )
            self._reader.start()
            self._ready.wait(START_SECONDS)
            if not self.address:
                raise TargetError(f"the server did not start: {self._last_lines()}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    def _end(self) -> None:
        try:
            if self._process:
                _terminate(self._process)
        finally:
            while self._previous_handlers:
                signal.signal(*self._previous_handlers.popitem())
        if self._reader.is_alive():
            self._reader.join(EXIT_SECONDS)

    def _handle_signals(self) -> None:
        """Turn signals that would end this process at once, and leave the server running, into KeyboardInterrupt."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in ENDING:
            handler = signal.getsignal(number)
            if handler is signal.SIG_DFL:  # not if they are ignored, as by nohup
                self._previous_handlers[number] = handler
                signal.signal(number, _interrupt)

    def _last_lines(self) -> str:
        """Return the line with the server's error, or else its last lines."""
        self._reader.join(EXIT_SECONDS)
        errors = [line.removeprefix(ERROR) for line in self._lines if line.startswith(ERROR)]
        return (errors or [" | ".join(list(self._lines)[-SHOWN_LINES:]) or "no output"])[-1]

    def _read(self) -> None:
        """Read to the end: a full pipe would block the server."""
        assert self._process is not None
        assert self._process.stderr is not None
        for text in self._process.stderr:
            self._lines.append(text.strip())
            self.line(text)
        self._ready.set()  # the process has ended


class TriptychServer(ServerProcess):
    """`triptych serve` on a free port of this machine, for the duration of the `with` block.

    Args:
        flags: Further flags. The server does not get TRIPTYCH_* and OTEL_* variables: they are the benchmark's.
    """

    def __init__(self, flags: Sequence[str]) -> None:
        serve = [sys.executable, "-m", "triptych_cli", "serve", "--host", "127.0.0.1", "--port", "0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
        environment["TRIPTYCH_METRICS_PORT"] = "0"  # the flag would be refused beside --no-metrics
        # Last, so that it counts: the server says at this level that it is ready.
        super().__init__([*serve, *flags, "--log-level", "info"], READY, environment)
        self.metrics_url = ""

    def line(self, text: str) -> None:
        if metrics := METRICS.search(text):
            self.metrics_url = metrics[1]
        super().line(text)


def _terminate(process: "subprocess.Popen[str]") -> None:
    """Terminate a process; kill it if that takes too long or another signal arrives."""
    try:
        process.terminate()
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
