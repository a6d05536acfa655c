"""The `triptych` command, run in this process."""

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from triptych_cli.main import main
from triptych_serving import server
from triptych_serving.server import ServerOptions


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error."""
        assert self.code != 0, self.err
        [line] = self.err.splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")

    @property
    def success(self) -> str:
        """The output of a command that succeeded without warnings."""
        assert (self.code, self.err) == (0, "")
        return self.out


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command: `run("translate", "text", stdin=b"...")`."""
    for name in [name for name in os.environ if name.startswith("TRIPTYCH_")]:
        monkeypatch.delenv(name)

    def run_command(*arguments: str | Path, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["triptych", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as end:
            main()
        if sys.stdout is not None:
            sys.stdout.flush()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Result(code or 0, *capfd.readouterr())

    return run_command


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServerOptions]:
    """Options of the servers that `serve` would start."""
    served: list[ServerOptions] = []

    async def serve(options: ServerOptions) -> None:
        served.append(options)

    monkeypatch.setattr(server, "serve", serve)
    return served
