"""What a job has made of one input file so far, and where it lies: in the output folder, out of the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from triptych_documents.errors import DocumentError
from triptych_ray.tables.files import kind_of
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.storage import Storage

FOLDER = ".triptych-parts"

Finding = dict[str, Any]  # as reports have it

NOT_OURS = "exists already, and no job into this folder wrote it as it is; --overwrite (`overwrite`) replaces it"


@dataclass(frozen=True)
class Record:
    """What was last written, or is about to be, to an output's place.

    Args:
        key: of the input and the job that it was made of.
        digest: SHA-256 of the output.
        earlier: that of the output of an earlier job, which is there until this one takes its place; or empty.
        findings: of this output.
        stamp: of the output in its place, which spares reading it; empty before it is there.
    """

    key: str
    digest: str
    earlier: str
    findings: list[Finding]
    stamp: str = ""


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
        return self._out / self._options.names[self._path]

    @property
    def is_done(self) -> bool:
        """The output file is of this job, and of the input as it is, and as it was written."""
        record = self._record
        return record is not None and record.key == self._key and self._is(record)

    def check(self) -> None:
        """Raises DocumentError: the output file is somebody else's."""
        if self._options.overwrite or not self.output.is_file:
            return
        record = self._record
        if record is None or not (self._is(record) or self.output.digest == record.earlier):
            raise DocumentError(f"{self.output.place}: {NOT_OURS}")

    def part(self, number: int) -> Storage:
        """The file of one chunk."""
        return self._folder / f"{number:08}{self.source.name[self.source.name.rindex('.') :].lower()}"

    @property
    def findings(self) -> list[Finding]:
        """Of a file that is done."""
        record = self._record
        return record.findings if record else []

    def write(self, number: int, write: Callable[[Any], None], findings: list[Finding]) -> None:
        """The part of one chunk; where it is there, its findings are."""
        _write(self._findings(number), findings)
        self.part(number).write_whole(write)

    def finish(self, count: int) -> None:
        """Make the output file of so many parts, then forget them. Raises DocumentError: somebody else's is there."""
        self.check()
        parts = [self.part(number) for number in range(count)]
        findings = [finding for number in range(count) for finding in _read(self._findings(number))]
        earlier = self.output.digest if self.output.is_file else ""
        record = Record(self._key, "", earlier, findings)

        def ready(complete: Storage) -> None:
            nonlocal record  # written first: at no moment is there an output that no record knows
            record = replace(record, digest=complete.digest)
            _write(self._done, asdict(record))

        self.output.write_whole(lambda stream: kind_of(self.source).join(parts, stream), ready)
        _write(self._done, asdict(replace(record, stamp=self.output.stamp)))
        self._folder.delete_folder()

    def _is(self, record: Record) -> bool:
        """What is there is what was written."""
        output = self.output
        return output.is_file and (output.stamp == record.stamp or output.digest == record.digest)

    @property
    def _record(self) -> Record | None:
        return Record(**_read(self._done)) if self._done.is_file else None

    def _findings(self, number: int) -> Storage:
        return self._folder / f"{number:08}.findings"

    @cached_property
    def _key(self) -> str:
        told = f"{self.source.place}\n{self.source.stamp}\n{self._options.fingerprint}"
        return _short(told)

    @property
    def _folder(self) -> Storage:
        return self._out / FOLDER / self._key

    @property
    def _done(self) -> Storage:
        """One for each output, whatever made it: the last one counts."""
        return self._out / FOLDER / f"{_short(self._options.names[self._path])}.done"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


def _write(file: Storage, told: Any) -> None:
    file.write_whole(lambda stream: stream.write(json.dumps(told).encode()))


def _read(file: Storage) -> Any:
    with file.files.open_input_stream(file.path) as stream:
        return json.loads(stream.read())
