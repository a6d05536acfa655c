"""The progress of a job on one input file, stored in a hidden folder of the output folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from triptych_documents.errors import DocumentError
from triptych_ray.tables.files import table_format
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.storage import Storage

FOLDER = ".triptych-parts"

FindingValues = dict[str, Any]  # a finding in a report

NOT_OURS = "exists, and no job into this folder wrote it in this form; use --overwrite (`overwrite`) to replace it"


@dataclass(frozen=True)
class OutputRecord:
    """The last file that was written, or is about to be, as an output."""

    key: str  # hash of the input and the job that it was made from
    digest: str  # SHA-256 of the output
    earlier: str  # SHA-256 of the output of an earlier job, which this one replaces; or empty
    findings: list[FindingValues]  # findings of this output
    stamp: str = ""  # size and time of the written output, which saves reading it; empty before it is written


class FileParts:
    """The parts of one file; valid while neither the file nor the job changes."""

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
        """The output file exists unchanged, and was made by this job from the input as it is now."""
        record = self._record
        return record is not None and record.key == self._key and self._is_current(record)

    def check(self) -> None:
        """Raise DocumentError if the output file is not from a job."""
        if self._options.overwrite or not self.output.is_file:
            return
        record = self._record
        if record is None or not (self._is_current(record) or self.output.digest == record.earlier):
            raise DocumentError(f"{self.output.place}: {NOT_OURS}")

    def part(self, number: int) -> Storage:
        """Return the part file of a chunk."""
        return self._folder / f"{number:08}{self.source.name[self.source.name.rindex('.') :].lower()}"

    @property
    def findings(self) -> list[FindingValues]:
        """Findings of a finished file."""
        record = self._record
        return record.findings if record else []

    def write(self, number: int, write: Callable[[Any], None], findings: list[FindingValues]) -> None:
        """Write the part of a chunk. Its findings are written first, so that they exist if the part does."""
        _write(self._findings(number), findings)
        self.part(number).write_whole(write)

    def finish(self, count: int) -> None:
        """Make the output file of `count` parts and delete them. Raises DocumentError: see `check`."""
        self.check()
        parts = [self.part(number) for number in range(count)]
        findings = [finding for number in range(count) for finding in _read(self._findings(number))]
        earlier = self.output.digest if self.output.is_file else ""
        record = OutputRecord(self._key, "", earlier, findings)

        def ready(complete: Storage) -> None:
            nonlocal record  # written first: at no time is there an output without a record
            record = replace(record, digest=complete.digest)
            _write(self._done, asdict(record))

        self.output.write_whole(lambda stream: table_format(self.source).join(parts, stream), ready)
        _write(self._done, asdict(replace(record, stamp=self.output.stamp)))
        self._folder.delete_folder()

    def _is_current(self, record: OutputRecord) -> bool:
        output = self.output
        return output.is_file and (output.stamp == record.stamp or output.digest == record.digest)

    @property
    def _record(self) -> OutputRecord | None:
        return OutputRecord(**_read(self._done)) if self._done.is_file else None

    def _findings(self, number: int) -> Storage:
        return self._folder / f"{number:08}.findings"

    @cached_property
    def _key(self) -> str:
        return _short_hash(f"{self.source.place}\n{self.source.stamp}\n{self._options.fingerprint}")

    @property
    def _folder(self) -> Storage:
        return self._out / FOLDER / self._key

    @property
    def _done(self) -> Storage:
        """The record of an output, whichever job made it: the last one counts."""
        return self._out / FOLDER / f"{_short_hash(self._options.names[self._path])}.done"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


def _write(file: Storage, values: Any) -> None:
    file.write_whole(lambda stream: stream.write(json.dumps(values).encode()))


def _read(file: Storage) -> Any:
    with file.files.open_input_stream(file.path) as stream:
        return json.loads(stream.read())
