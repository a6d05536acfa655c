"""A table job in a process of its own, which tests may kill."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from ..support.processes import clean_environment
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
values = json.loads(sys.argv[1])
files = tuple((path, Path(path).name) for path in values.pop("paths"))
request = TranslationRequest(models=Path(values.pop("models")))
options = TableOptions(files=files, request=request, rules=TranslationRules(source_language="en"), **values)
report = run(options, lambda progress: print(json.dumps(progress.chunks), flush=True))
print(json.dumps(dataclasses.asdict(report)), flush=True)
"""


class TableJob:
    """A running job.

    Args:
        options: of TableOptions, with the repository as `models`.
        log: file for its output.
    """

    def __init__(self, options: dict[str, object], log: Path) -> None:
        self._log = log
        environment = {**clean_environment(), **SETTINGS}
        command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

    @property
    def output(self) -> list[str]:
        """Lines of output so far."""
        return self._log.read_text(encoding="utf-8").splitlines()

    @property
    def chunks(self) -> int:
        """Number of finished chunks."""
        return sum(line.isdigit() for line in self.output)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the job is running."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < until, self.output
            time.sleep(0.02)

    def workers(self) -> list[psutil.Process]:
        """Return the processes that translate."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in family if WORKER in " ".join(process.cmdline())]

    def kill(self) -> None:
        """Kill the job and its cluster."""
        driver = psutil.Process(self.process.pid)
        for process in (driver, *driver.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def report(self) -> dict[str, object]:
        """Wait for the end and return the report."""
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.output
        values: dict[str, object] = json.loads(self.output[-1])
        return values
