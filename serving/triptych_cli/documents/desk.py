"""Opens documents when it is their turn, and puts their translations in place."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from triptych_cli.documents.bilingual import Bilingual
from triptych_cli.documents.discovery import Found
from triptych_cli.documents.opened import Opened
from triptych_cli.documents.records import Records, digest_of
from triptych_cli.documents.summary import State, Summary, failed
from triptych_cli.documents.writing import read_blocks, write_whole
from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.format import FormatInfo, ReadOptions, load_format
from triptych_embedded.identity import digest

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
            summary = _summary(opened, self._target(found))
            self._check(found)
            if self._rules.bilingual is not None:
                pairs = self._pairs(opened, self._rules.bilingual)
                self._put(self._pairs_file(found), opened.digest, found, pairs, {})
            self._put(self._target(found), opened.digest, found, content, summary.values())
        except (DocumentError, OSError) as error:
            summary = failed(found, str(self._target(found)), _problem(error, found))
        self._tell(summary, 0)

    def _read(self, found: Found) -> Opened | None:
        """None: nothing is to be done, or nothing can be."""
        try:
            if found.kind is not None:
                return self._parse(found, found.kind)
            self._pass_on(found)
        except (DocumentError, OSError) as error:
            self._tell(failed(found, str(self._target(found)), _problem(error, found)), found.size)
        return None

    def _parse(self, found: Found, kind: FormatInfo) -> Opened | None:
        data = found.source.read_bytes()
        source_digest = digest(data)
        if self._is_done(found, source_digest):
            return None
        self._check(found)
        document = _checked(lambda: load_format(kind).read(data, self._rules.options))
        return Opened(found, source_digest, len(data), document)

    def _pass_on(self, found: Found) -> None:
        """A file that no format reads. It may be larger than the memory."""
        target = self._target(found)
        if not self._rules.copies_others:
            self._tell(Summary(str(found.source), str(target), "", State.IGNORED), found.size)
            return
        source_digest = digest_of(found.source)
        if self._is_done(found, source_digest):
            return
        self._check(found)
        summary = Summary(str(found.source), str(target), "", State.COPIED)
        if not self._reads_only:
            self._put(target, source_digest, found, read_blocks(found.source), summary.values())
        self._tell(summary, found.size)

    def _is_done(self, found: Found, source_digest: str) -> bool:
        """Tells what an earlier run made of it. Where something could not be translated, it is tried again."""
        target = self._target(found)
        values = self._records.done(target, source_digest, _format(found))
        if values is None or not all(map(self._records.owns, self._files(found)[1:])):
            return False
        # The folders may have been moved, or named in another way.
        own = {"source": str(found.source), "target": str(target), "state": State.UNCHANGED}
        summary = Summary.of({**values, **own})
        if summary.errors:
            return False
        self._tell(summary, found.size)
        return True

    def _check(self, found: Found) -> None:
        """Raises FileExistsError: what would be replaced is not the job's."""
        for file in self._files(found):
            if not self._rules.overwrites and os.path.lexists(file) and not self._records.owns(file):
                raise FileExistsError(NOT_OURS if file == self._target(found) else f"{file}: {NOT_OURS}")

    def _put(
        self, file: Path, source_digest: str, found: Found, content: bytes | Iterable[bytes], summary: Mapping[str, Any]
    ) -> None:
        write_whole(file, content, lambda target: self._records.add(file, source_digest, _format(found), target, summary))

    def _pairs(self, opened: Opened, bilingual: Bilingual) -> bytes:
        options = self._rules.options
        return _checked(lambda: bilingual.write(opened.all_pairs, options.source_language, options.target_language))

    def _files(self, found: Found) -> list[Path]:
        """That are written for it."""
        return [self._target(found), *([self._pairs_file(found)] if found.kind and self._rules.bilingual else [])]

    def _pairs_file(self, found: Found) -> Path:
        return self._rules.out / f"{found.name}{self._rules.bilingual.suffix if self._rules.bilingual else ''}"

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


def _format(found: Found) -> str:
    return found.kind.name if found.kind else ""


def _summary(opened: Opened, target: Path) -> Summary:
    units = opened.document.units
    return Summary(
        str(opened.found.source),
        str(target),
        _format(opened.found),
        State.TRANSLATED,
        len(units),
        sum(map(len, opened.pairs.values())),
        sum(len(unit.text) for unit in units),
        tuple(opened.findings),
    )


def _problem(error: Exception, found: Found) -> str:
    """Without the name of the source, which goes before it."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}" if str(error.filename) != str(found.source) else str(error.strerror)
    return str(error)
