"""What a job has made of one input file so far, and where it lies: in the output folder, out of the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

from triptych_ray.tables.files import kind_of
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.storage import Storage

FOLDER = ".triptych-parts"

Finding = dict[str, Any]  # as reports have it


class Parts:
    """Of one file, as long as neither the file nor the job changes.

    Args:
        options: of the job.
        path: of the input file.
    """

    def __init__(self, options: TableOptions, path: str) -> None:
        self.source = Storage(path)
        self._path = path
        self._out = Storage(options.out)
        self._options = options

    @property
    def output(self) -> Storage:
        """The output file."""
        return self._out / dict(self._options.files)[self._path]

    @property
    def is_done(self) -> bool:
        """The output file is of this job, and of the input as it is."""
        return self.output.is_file and self._done.is_file

    def part(self, number: int) -> Storage:
        """The file of one chunk."""
        return self._folder / f"{number:08}{self.source.name[self.source.name.rindex('.') :].lower()}"

    @property
    def findings(self) -> list[Finding]:
        """Of a file that is done."""
        return _read(self._done)

    def write(self, number: int, write: Callable[[Any], None], findings: list[Finding]) -> None:
        """The part of one chunk; where it is there, its findings are."""
        _write(self._findings(number), findings)
        self.part(number).write_whole(write)

    def finish(self, count: int) -> None:
        """Make the output file of so many parts, then forget them."""
        parts = [self.part(number) for number in range(count)]
        self.output.write_whole(lambda stream: kind_of(self.source).join(parts, stream))
        _write(self._done, [finding for number in range(count) for finding in _read(self._findings(number))])
        self._folder.delete_folder()

    def _findings(self, number: int) -> Storage:
        return self._folder / f"{number:08}.findings"

    @cached_property
    def _key(self) -> str:
        told = f"{self.source.place}\n{self.source.stamp}\n{self._options.fingerprint}"
        return hashlib.sha256(told.encode()).hexdigest()[:24]

    @property
    def _folder(self) -> Storage:
        return self._out / FOLDER / self._key

    @property
    def _done(self) -> Storage:
        return self._out / FOLDER / f"{self._key}.done"


def _write(file: Storage, findings: list[Finding]) -> None:
    file.write_whole(lambda stream: stream.write(json.dumps(findings).encode()))


def _read(file: Storage) -> list[Finding]:
    with file.files.open_input_stream(file.path) as stream:
        findings: list[Finding] = json.loads(stream.read())
    return findings
