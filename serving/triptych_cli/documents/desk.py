"""Opens documents when it is their turn, and puts their translations in place."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from triptych_cli.documents.bilingual import Bilingual
from triptych_cli.documents.discovery import Found
from triptych_cli.documents.identity import digest
from triptych_cli.documents.opened import Opened
from triptych_cli.documents.records import Records
from triptych_cli.documents.summary import State, Summary, failed
from triptych_cli.documents.writing import write_whole
from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.format import Document, Kind, ReadOptions, open_format

Done = TypeVar("Done")

NOT_OURS = "exists already, and no job with this journal wrote it as it is; --overwrite replaces it"


@dataclass(frozen=True)
class DeskRules:
    """What the desk does with files."""

    out: Path
    options: ReadOptions
    bilingual: Bilingual | None = None
    copies_others: bool = False
    overwrites: bool = False


class Desk:
    """Of one thread.

    Args:
        rules: what is done with files.
        records: of documents that are done.
        tell: called with each document that is done with, and the bytes of its source where it was no work.
        reads_only: nothing is written.
    """

    def __init__(
        self, rules: DeskRules, records: Records, tell: Callable[[Summary, int], None], reads_only: bool = False
    ) -> None:
        self._rules, self._records, self._tell, self._reads_only = rules, records, tell, reads_only
        self._open: set[Opened] = set()
        self._bytes_done = 0

    @property
    def bytes_done(self) -> float:
        """Of documents that this run worked on, about."""
        return self._bytes_done + sum(opened.bytes_done for opened in self._open)

    def open(self, documents: Iterable[Found]) -> Iterator[Opened]:
        """Those that are to be translated, read when they are asked for."""
        for found in documents:
            if (opened := self._read(found)) is not None:
                if not self._reads_only:
                    self._open.add(opened)
                yield opened

    def finish(self, opened: Opened) -> None:
        """All of its units are done.

        Raises:
            StoreError: the journal cannot be written.
        """
        self._open.discard(opened)
        self._bytes_done += opened.size
        found = opened.found
        try:
            content = _checked(lambda: opened.document.render(opened.translations))
            if self._rules.bilingual is not None:
                self._write_pairs(found, opened, self._rules.bilingual)
            summary = _summary(opened, self._target(found))
            self._put(found.name, opened.digest, content, summary)
        except (DocumentError, OSError) as error:
            summary = failed(found, str(self._target(found)), _problem(error))
        self._tell(summary, 0)

    def _read(self, found: Found) -> Opened | None:
        """None: nothing is to be done, or nothing can be."""
        target, size = self._target(found), 0
        try:
            data = found.source.read_bytes()
            size, source_digest = len(data), digest(data)
            done = self._done(found, source_digest)
            if done is not None:
                self._tell(done, size)
            elif target.exists() and not self._rules.overwrites and not self._records.owns(found.name, target):
                self._tell(failed(found, str(target), NOT_OURS), size)
            elif found.kind is not None:
                return Opened(found, source_digest, size, self._parse(found.kind, data))
            else:
                self._pass_on(found, source_digest, data)
        except (DocumentError, OSError) as error:
            self._tell(failed(found, str(target), _problem(error)), size)
        return None

    def _done(self, found: Found, source_digest: str) -> Summary | None:
        """What an earlier run made of it. Where something could not be translated, it is tried again."""
        values = self._records.done(found.name, source_digest, self._target(found))
        if values is None or not self._has_pairs(found):
            return None
        summary = Summary.of({**values, "state": State.UNCHANGED})
        return None if summary.errors else summary

    def _parse(self, kind: Kind, data: bytes) -> Document:
        return _checked(lambda: open_format(kind).read(data, self._rules.options))

    def _pass_on(self, found: Found, source_digest: str, data: bytes) -> None:
        """A file that no format reads."""
        target = self._target(found)
        copies = self._rules.copies_others
        summary = Summary(str(found.source), str(target), "", State.COPIED if copies else State.IGNORED)
        if copies and not self._reads_only:
            self._put(found.name, source_digest, data, summary)
        self._tell(summary, len(data))

    def _put(self, name: str, source_digest: str, content: bytes, summary: Summary) -> None:
        self._records.add(name, source_digest, digest(content), summary.values())
        write_whole(self._rules.out / name, content)

    def _write_pairs(self, found: Found, opened: Opened, bilingual: Bilingual) -> None:
        options = self._rules.options
        content = bilingual.write(opened.all_pairs, options.source_language, options.target_language)
        write_whole(self._pairs_file(found, bilingual), content)

    def _has_pairs(self, found: Found) -> bool:
        bilingual = self._rules.bilingual
        return bilingual is None or found.kind is None or self._pairs_file(found, bilingual).exists()

    def _pairs_file(self, found: Found, bilingual: Bilingual) -> Path:
        return self._rules.out / f"{found.name}{bilingual.suffix}"

    def _target(self, found: Found) -> Path:
        return self._rules.out / found.name


def _checked(action: Callable[[], Done]) -> Done:
    """What a format makes of a document. A fault of the format itself costs this document alone, not the job."""
    try:
        return action()
    except (DocumentError, OSError):
        raise
    except Exception as error:
        raise DamagedDocumentError(f"its format failed: {type(error).__name__}: {error}") from error


def _summary(opened: Opened, target: Path) -> Summary:
    units = opened.document.units
    return Summary(
        str(opened.found.source),
        str(target),
        opened.found.kind.name if opened.found.kind else "",
        State.TRANSLATED,
        len(units),
        sum(map(len, opened.pairs.values())),
        sum(len(unit.text) for unit in units),
        tuple(opened.findings),
    )


def _problem(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)
