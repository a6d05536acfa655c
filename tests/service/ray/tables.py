"""A job over tables in a process of its own, which tests may kill, and what it makes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ..processes import clean_environment
from .cluster import SETTINGS

PATIENCE_SECONDS = 240.0
WORKER = "ray::MapWorker"
PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from triptych_ray.tables.job import run
from triptych_ray.tables.options import TableOptions
from triptych_embedded.request import TranslationRequest
from triptych_documents.rules import TranslationRules
told = json.loads(sys.argv[1])
files = tuple((path, Path(path).name) for path in told.pop("paths"))
request = TranslationRequest(models=Path(told.pop("models")))
options = TableOptions(files=files, request=request, rules=TranslationRules(source_language="en"), **told)
report = run(options, lambda progress: print(json.dumps(progress.chunks), flush=True))
print(json.dumps(dataclasses.asdict(report)), flush=True)
"""


class TableJob:
    """A job that runs.

    Args:
        options: of TableOptions, with the repository as `models`.
        log: file for what it says.
    """

    def __init__(self, options: dict[str, object], log: Path) -> None:
        self._log = log
        environment = {**clean_environment(), **SETTINGS}
        command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

    @property
    def said(self) -> list[str]:
        """Lines so far."""
        return self._log.read_text(encoding="utf-8").splitlines()

    @property
    def chunks(self) -> int:
        """Done so far."""
        return sum(line.isdigit() for line in self.said)

    def wait_until(self, what: Callable[[], bool]) -> None:
        """Until it is true; the job must be running."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not what():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)

    def workers(self) -> list[psutil.Process]:
        """The processes that translate."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in family if WORKER in " ".join(process.cmdline())]

    def kill(self) -> None:
        """With all of its cluster."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        for process in (psutil.Process(self.process.pid), *family):
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self.process.wait()

    def report(self) -> dict[str, object]:
        """Once it has ended."""
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.said
        told: dict[str, object] = json.loads(self.said[-1])
        return told
