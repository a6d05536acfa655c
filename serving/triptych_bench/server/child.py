"""A server of the benchmark's own."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

from triptych_bench.target import TargetError

READY = re.compile(r"ready on (\S+) after")
METRICS = re.compile(r"metrics on (http://\S+/metrics)")
START_SECONDS = 600.0
EXIT_SECONDS = 15.0
ERROR = "Error: "
SHOWN_LINES = 3  # of what a server that does not start has said
OWN = ("TRIPTYCH_", "OTEL_")
ENDING = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]  # Windows has one


class ServerChild:
    """`triptych serve` on a free port of this machine, for as long as the `with` block lasts.

    Args:
        flags: more of its options. The environment's variables are not for it: they are the benchmark's.

    Raises:
        TargetError: it does not start; says what it said.
    """

    def __init__(self, flags: Sequence[str]) -> None:
        self._flags = tuple(flags)
        self._lines: deque[str] = deque(maxlen=100)
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._handlers: dict[int, Any] = {}  # as they were before
        self.address = self.metrics_url = ""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "triptych_cli", "serve", "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
        self._listen()
        try:
            # A session of its own: Ctrl-C is for the benchmark, which still has to ask the server something.
            self._process = subprocess.Popen(
                [*command, *self._flags], stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
            )
            self._reader.start()
            self._ready.wait(START_SECONDS)
            if not self.address:
                raise TargetError(f"the server did not start: {self._last_words()}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        try:
            if self._process:
                _end(self._process)
        finally:
            self._forget()
        if self._reader.is_alive():
            self._reader.join(EXIT_SECONDS)

    def _listen(self) -> None:
        """Signals that would end this process at once, and leave the server behind, are KeyboardInterrupts for now."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in ENDING:
            handler = signal.getsignal(number)
            if handler is signal.SIG_DFL:  # not where they are ignored, as nohup has it
                self._handlers[number] = handler
                signal.signal(number, _interrupt)

    def _forget(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _last_words(self) -> str:
        """The line with its error, else the last lines."""
        self._reader.join(EXIT_SECONDS)
        errors = [line.removeprefix(ERROR) for line in self._lines if line.startswith(ERROR)]
        return (errors or [" | ".join(list(self._lines)[-SHOWN_LINES:]) or "it says nothing"])[-1]

    def _read(self) -> None:
        """To the end: a full pipe would stop the server."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line.strip())
            if metrics := METRICS.search(line):
                self.metrics_url = metrics[1]
            if ready := READY.search(line):
                self.address = ready[1]
                self._ready.set()
        self._ready.set()  # it has ended


def _end(process: "subprocess.Popen[str]") -> None:
    """Politely, unless it takes too long or another signal comes."""
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
