"""A job: translate the documents, or what earlier runs left of them."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

from triptych.version import __version__
from triptych_cli.common.progress import ProgressLine
from triptych_cli.documents.discovery import SourceFile
from triptych_cli.documents.document_files import DocumentFiles, DocumentSummary, FilePolicy, OpenDocument
from triptych_cli.documents.human import HumanTranslations
from triptych_cli.documents.stored import Database, DocumentRecords, StoredTranslations
from triptych_documents.driver import DocumentDriver
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import HumanLookup, SentenceTranslation
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Unit
from triptych_embedded.sentences import SentenceOutcome, SentenceTranslator, TranslatorIdentity, canonical, digest

WAIT_SECONDS = 0.2  # for results, before checking whether the job is to stop
COMMIT_SECONDS = 0.5  # at most this much work is lost with the process
REFILL = 0.25  # read units when this share of the translator's window is free: a few at a time cost more
GC_OBJECTS = 20_000  # new objects between two garbage collections; Python's own 700 cost a quarter of the job's time

UnitKey = tuple[OpenDocument, int]  # a document and the index of a unit


@dataclass(frozen=True)
class DocumentJob:
    """A set of documents to translate."""

    documents: Sequence[SourceFile]  # in this order
    policy: FilePolicy  # how files are read and written
    rules: TranslationRules  # for their texts
    journal: Database  # of the job
    memory: Database | None = None  # where translations are looked up and stored; None: the journal
    tmx: Sequence[Path] = ()  # files with human translations
    fails_fast: bool = False  # stop at the first error

    @property
    def store(self) -> Database:
        """The database of translations: the memory, or else the journal."""
        return self.memory or self.journal

    def in_languages(self, source: str, target: str) -> "DocumentJob":
        """Return the job with the languages that the model has settled."""
        rules = replace(self.rules, source_language=source, target_language=target)
        options = replace(self.policy.options, source_language=source, target_language=target)
        return replace(self, rules=rules, policy=replace(self.policy, options=options))

    def settings(self, identity: TranslatorIdentity, human: HumanTranslations) -> str:
        """Return the SHA-256 of everything that a document's translation depends on beside the document."""
        values = {
            "release": __version__,
            "identity": identity.text,
            "rules": asdict(self.rules),
            "options": asdict(self.policy.options),
            "bilingual": self.policy.bilingual.name if self.policy.bilingual else "",
            "human": [*human.editions.values(), *(digest(file.read_bytes()) for file in self.tmx)],
        }
        return digest(canonical(values))


@dataclass
class SegmentCounts:
    """Progress of a run."""

    done: int = 0  # sentences of finished units
    translated: int = 0  # requests that the translator completed
    remembered: int = 0  # requests that an earlier run had completed
    human: int = 0  # units and sentences with a human translation


@dataclass
class JobResult:
    """The result of a run; documents in the job's order."""

    identity: TranslatorIdentity
    counts: SegmentCounts = field(default_factory=SegmentCounts)
    documents: list[DocumentSummary] = field(default_factory=list)
    dropped: Mapping[Path, Counter[str]] = field(default_factory=dict)  # entries of TMX files that cannot be used, by reason
    is_complete: bool = False  # it was not stopped
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """Number of errors in all documents."""
        return sum(summary.errors for summary in self.documents)


def run_job(
    job: DocumentJob, translator: SentenceTranslator, progress: ProgressLine, is_stopped: Callable[[], bool] = lambda: False
) -> JobResult:
    """Run a job, or what is left of it.

    Args:
        is_stopped: called often; True ends the job early, and the next run continues from there.

    Raises:
        BackendError: the translator failed.
        DatabaseError: journal or memory cannot be used.
        DocumentError: a TMX file cannot be read.
    """
    began = time.monotonic()
    identity = translator.identity
    job = job.in_languages(identity.source_language, identity.target_language)
    human = HumanTranslations(job.store, job.tmx, identity.source_language, identity.target_language)
    records = DocumentRecords(job.journal, job.settings(identity, human))
    result = JobResult(identity, dropped=human.dropped)

    def report(summary: DocumentSummary, skipped: int) -> None:
        result.documents.append(summary)
        progress.finish(skipped)

    files = DocumentFiles(job.policy, records, report)
    loop = TranslationLoop(job.rules, translator, StoredTranslations(job.store, identity), human.find, files.finish)
    result.counts = loop.counts

    def continues() -> bool:
        progress.show(loop.counts.done, files.bytes_done)
        return not is_stopped() and not (job.fails_fast and result.errors)

    try:
        with rare_collections():
            result.is_complete = loop.run(files.open(job.documents), continues)
    finally:
        progress.clear()
    order = {str(job.policy.out / file.name): index for index, file in enumerate(job.documents)}
    result.documents.sort(key=lambda summary: order[summary.target])
    result.seconds = time.monotonic() - began
    return result


class TranslationLoop:
    """Moves units through the translator: human translations first, then stored ones, then the model. Not thread-safe.

    The translator always has work while there is any; nothing waits for the end of a batch.

    Args:
        stored: translations of earlier runs; new ones are added.
        people: looks up human translations.
        finish: called with each document whose units are all translated.
    """

    def __init__(
        self,
        rules: TranslationRules,
        translator: SentenceTranslator,
        stored: StoredTranslations,
        people: HumanLookup,
        finish: Callable[[OpenDocument], None],
    ) -> None:
        self.counts = SegmentCounts()
        self._rules, self._translator, self._stored, self._people, self._finish = rules, translator, stored, people, finish

    def run(self, documents: Iterable[OpenDocument], continues: Callable[[], bool]) -> bool:
        """Translate all documents while `continues`, which is called often, is true; return whether it was to the end.

        What is known by then is stored. Raises as `run_job`.
        """
        units = self._units(documents, continues)
        window = self._translator.window
        driver = DocumentDriver(UnitTranslator(self._rules, self._find_human), units, window=window, refill=REFILL)
        results: list[SentenceOutcome] = []
        written = time.monotonic()
        try:
            while continues():
                for unit in driver.advance(results):
                    document, index = cast(UnitKey, unit.key)
                    self.counts.done += len(unit.pairs)
                    if document.put(index, unit):
                        self._finish(document)
                requests = driver.take()
                stored = self._stored.find(requests)
                self.counts.remembered += len(stored)
                results = list(stored.items())
                if new := [request for request in requests if request not in stored]:
                    self._translator.submit(new)
                if driver.is_finished:
                    return continues()
                results += self._receive(0.0 if results or driver.can_read else WAIT_SECONDS)
                if time.monotonic() - written >= COMMIT_SECONDS:
                    self._stored.flush()
                    written = time.monotonic()
            return False
        finally:
            self._stored.flush()

    def _units(self, documents: Iterable[OpenDocument], continues: Callable[[], bool]) -> Iterator[tuple[UnitKey, Unit]]:
        for document in documents:
            if not continues():  # there may be many with nothing to do
                return
            if not document.document.units:
                self._finish(document)
            yield from (((document, index), unit) for index, unit in enumerate(document.document.units))

    def _find_human(self, text: str) -> str | None:
        found = self._people(text)
        self.counts.human += found is not None
        return found

    def _receive(self, patience_seconds: float) -> Sequence[SentenceOutcome]:
        outcomes = self._translator.take(patience_seconds)
        for request, outcome in outcomes:
            if isinstance(outcome, SentenceTranslation):
                self.counts.translated += 1
                self._stored.add(request, outcome)
        return outcomes


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often while a job runs: its many small objects form no reference cycles."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
