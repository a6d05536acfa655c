"""Read documents when it is their turn, and write their translations."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any

from triptych_cli.documents.discovery import SourceFile
from triptych_cli.documents.files import BilingualFormat, read_blocks, write_whole
from triptych_cli.documents.stored import DocumentRecords, file_digest
from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document, FormatInfo, ReadOptions
from triptych_documents.sentences import SentencePair
from triptych_documents.translation.units import TranslatedUnit
from triptych_documents.unit import Piece
from triptych_embedded.sentences import digest

NOT_OURS = "exists, and no job with this journal wrote it in this form; use --overwrite to replace it"


class DocumentState(StrEnum):
    """Outcome of a document."""

    TRANSLATED = "translated"
    UNCHANGED = "unchanged"  # an earlier run translated it
    COPIED = "copied"  # no known format
    IGNORED = "ignored"  # no known format, and copies were not requested
    FAILED = "failed"


@dataclass(frozen=True)
class DocumentSummary:
    """The result of one document; findings in document order."""

    source: str
    target: str
    format: str
    state: DocumentState
    units: int = 0
    segments: int = 0
    characters: int = 0
    findings: Sequence[Finding] = ()

    @property
    def errors(self) -> int:
        """Number of places that kept the source text, or 1 if the whole document failed."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    def values(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {**vars(self), "state": self.state.value, "findings": [finding.values() for finding in self.findings]}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "DocumentSummary":
        """Return the summary that `values` described."""
        findings = [
            Finding(FindingKind(kind), Severity(severity), where, message)
            for kind, severity, where, message in map(itemgetter("kind", "severity", "where", "message"), values["findings"])
        ]
        return cls(**{**values, "state": DocumentState(values["state"]), "findings": findings})


@dataclass(eq=False, slots=True)
class OpenDocument:
    """A document in progress. Not thread-safe."""

    file: SourceFile  # where it came from
    digest: str  # SHA-256 of the source
    size: int  # size of the source in bytes
    document: Document  # the parsed document
    translations: dict[int, Sequence[Piece]] = field(default_factory=dict)
    pairs: dict[int, Sequence[SentencePair]] = field(default_factory=dict)
    notes: dict[int, Sequence[Finding]] = field(default_factory=dict)

    def put(self, index: int, unit: TranslatedUnit) -> bool:
        """Store a translated unit; return True if it is the last one."""
        self.translations[index] = unit.pieces
        self.pairs[index] = unit.pairs
        if unit.findings:
            self.notes[index] = unit.findings
        return len(self.translations) == len(self.document.units)

    @property
    def bytes_done(self) -> float:
        """Approximate number of translated bytes: the same share as of the units."""
        return self.size * len(self.translations) / max(1, len(self.document.units))

    @property
    def findings(self) -> list[Finding]:
        """Findings of the document, then of its units in order."""
        return [*self.document.findings, *(finding for index in sorted(self.notes) for finding in self.notes[index])]

    @property
    def all_pairs(self) -> list[SentencePair]:
        """Sentence pairs in document order."""
        return [pair for index in sorted(self.pairs) for pair in self.pairs[index]]


@dataclass(frozen=True)
class FilePolicy:
    """Rules for reading and writing files."""

    out: Path
    options: ReadOptions
    bilingual: BilingualFormat | None = None
    copies_others: bool = False
    overwrites: bool = False


class DocumentFiles:
    """Opens the documents of a job one after the other and writes the finished ones. Not thread-safe.

    Args:
        report: called with the summary of each document, and the size of its source if there was nothing to translate.
    """

    def __init__(
        self,
        policy: FilePolicy,
        records: DocumentRecords,
        report: Callable[[DocumentSummary, int], None],
        reads_only: bool = False,
    ) -> None:
        self._policy, self._records, self._report, self._reads_only = policy, records, report, reads_only
        self._open: set[OpenDocument] = set()
        self._bytes_done = 0

    @property
    def bytes_done(self) -> float:
        """Approximate number of bytes that this run has translated."""
        return self._bytes_done + sum(document.bytes_done for document in self._open)

    def open(self, files: Iterable[SourceFile]) -> Iterator[OpenDocument]:
        """Yield the documents to translate; each is read when it is requested."""
        for file in files:
            if (document := self._read(file)) is not None:
                if not self._reads_only:
                    self._open.add(document)
                yield document

    def finish(self, document: OpenDocument) -> None:
        """Write a document whose units are all translated. Raises DatabaseError: the journal cannot be written."""
        self._open.discard(document)
        self._bytes_done += document.size
        file = document.file
        try:
            with _checked():
                content = document.document.render(document.translations)
            summary = self._summary(
                file,
                DocumentState.TRANSLATED,
                units=len(document.document.units),
                segments=sum(map(len, document.pairs.values())),
                characters=sum(len(unit.text) for unit in document.document.units),
                findings=tuple(document.findings),
            )
            self._check(file)
            target, *beside = self._files(file)
            if self._policy.bilingual is not None:
                options = self._policy.options
                with _checked():
                    pairs = self._policy.bilingual.write(document.all_pairs, options.source_language, options.target_language)
                self._put(beside[0], document.digest, file, pairs, {})
            self._put(target, document.digest, file, content, summary.values())
        except (DocumentError, OSError) as error:
            summary = self._failed(file, error)
        self._report(summary, 0)

    def _read(self, file: SourceFile) -> OpenDocument | None:
        """Return None if there is nothing to translate, or the file cannot be read."""
        try:
            if file.format is not None:
                return self._parse(file, file.format)
            self._pass_on(file)
        except (DocumentError, OSError) as error:
            self._report(self._failed(file, error), file.size)
        return None

    def _parse(self, file: SourceFile, format_info: FormatInfo) -> OpenDocument | None:
        data = file.source.read_bytes()
        source_digest = digest(data)
        if self._is_done(file, source_digest):
            return None
        self._check(file)
        with _checked():
            document = format_info.read(data, self._policy.options)
        return OpenDocument(file, source_digest, len(data), document)

    def _pass_on(self, file: SourceFile) -> None:
        """Copy or ignore a file without a known format. It may be larger than the memory."""
        if not self._policy.copies_others:
            self._report(self._summary(file, DocumentState.IGNORED), file.size)
            return
        source_digest = file_digest(file.source)
        if self._is_done(file, source_digest):
            return
        self._check(file)
        summary = self._summary(file, DocumentState.COPIED)
        if not self._reads_only:
            self._put(self._files(file)[0], source_digest, file, read_blocks(file.source), summary.values())
        self._report(summary, file.size)

    def _is_done(self, file: SourceFile, source_digest: str) -> bool:
        """Report a document that an earlier run translated without errors. One with errors is translated again."""
        target, *beside = self._files(file)
        values = self._records.find(target, source_digest, file.format_name)
        if values is None or not all(map(self._records.owns, beside)):
            return False
        # The folders may have been moved, or named in another way.
        own = {"source": str(file.source), "target": str(target), "state": DocumentState.UNCHANGED}
        summary = DocumentSummary.of({**values, **own})
        if summary.errors:
            return False
        self._report(summary, file.size)
        return True

    def _check(self, file: SourceFile) -> None:
        """Raise FileExistsError if a file that this job did not write would be replaced."""
        for path in self._files(file):
            if not self._policy.overwrites and os.path.lexists(path) and not self._records.owns(path):
                raise FileExistsError(f"{path}: {NOT_OURS}")

    def _put(
        self, path: Path, source_digest: str, file: SourceFile, content: bytes | Iterable[bytes], summary: Mapping[str, Any]
    ) -> None:
        write_whole(path, content, lambda target: self._records.add(path, source_digest, file.format_name, target, summary))

    def _files(self, file: SourceFile) -> list[Path]:
        """Return the output files of a document, the translation first."""
        bilingual = self._policy.bilingual
        names = [file.name, file.name + bilingual.suffix] if file.format and bilingual else [file.name]
        return [self._policy.out / name for name in names]

    def _summary(self, file: SourceFile, state: DocumentState, **values: Any) -> DocumentSummary:
        return DocumentSummary(str(file.source), str(self._files(file)[0]), file.format_name, state, **values)

    def _failed(self, file: SourceFile, error: Exception) -> DocumentSummary:
        """Return the summary of a document without a translation. Reports name the source, so the message does not."""
        message = str(error)
        if isinstance(error, OSError) and error.filename:
            other = str(error.filename) != str(file.source)
            message = f"{error.filename}: {error.strerror}" if other else str(error.strerror)
        return self._summary(file, DocumentState.FAILED, findings=[Finding(FindingKind.FORMAT, Severity.ERROR, "", message)])


@contextmanager
def _checked() -> Iterator[None]:
    """Run code of a format. A bug in a format costs this document alone, not the job."""
    try:
        yield
    except (DocumentError, OSError):
        raise
    except Exception as error:
        raise DamagedDocumentError(f"its format failed: {type(error).__name__}: {error}") from error
