"""A dry run: count what a job would translate."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from triptych_cli.documents.document_files import DocumentFiles, DocumentState, DocumentSummary, OpenDocument
from triptych_cli.documents.human import HumanTranslations
from triptych_cli.documents.job import DocumentJob
from triptych_cli.documents.stored import DocumentRecords, StoredTranslations
from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Unit
from triptych_embedded.sentences import TranslatorIdentity

COUNTED_AS = {
    DocumentState.UNCHANGED: "done",
    DocumentState.COPIED: "others",
    DocumentState.IGNORED: "others",
    DocumentState.FAILED: "failed",
}
LOOKUP = 1_024  # requests that are looked up together


@dataclass
class PlannedWork:
    """Counts of a dry run."""

    documents: int = 0  # to translate
    done: int = 0  # translated by an earlier run
    others: int = 0  # without a known format
    failed: int = 0  # not readable, or would replace a file that the job did not write
    units: int = 0
    repeated: int = 0  # units whose sentences occurred before
    characters: int = 0
    segments: int = 0  # different sentences
    remembered: int = 0  # of these, translated by an earlier run


def count_job(
    job: DocumentJob, identity: TranslatorIdentity | None, languages: tuple[str, str], continues: Callable[[], bool]
) -> PlannedWork:
    """Count what a job would translate.

    Args:
        job: what to translate.
        identity: of the translator; None if neither journal nor memory has anything of it.
        languages: source and target, as the user named them.
        continues: called often; False stops.

    Raises:
        DatabaseError: journal or memory cannot be used.
        DocumentError: a TMX file cannot be read.
    """
    source, target = (identity.source_language, identity.target_language) if identity else languages
    job = job.in_languages(source, target)
    human = HumanTranslations([job.store], job.tmx, source, target)
    counter = _Counter(UnitTranslator(job.rules), StoredTranslations(job.store, identity) if identity else None)
    records = DocumentRecords(job.journal, job.settings(identity, human) if identity else "")
    files = DocumentFiles(job.policy, records, lambda summary, _: counter.note(summary), reads_only=True)
    counter.count(files.open(job.documents), continues)
    return counter.planned


class _Counter:
    def __init__(self, translator: UnitTranslator, stored: StoredTranslations | None) -> None:
        self.planned = PlannedWork()
        self._translator, self._stored = translator, stored
        self._requests: list[SentenceRequest] = []

    def count(self, documents: Iterable[OpenDocument], continues: Callable[[], bool]) -> None:
        for document in documents:
            self.planned.documents += 1
            for unit in document.document.units:
                self._add(unit)
            self._translator.done()
            if len(self._requests) >= LOOKUP:
                self._look_up()
            if not continues():
                break
        self._look_up()

    def note(self, summary: DocumentSummary) -> None:
        """Count a document that is not translated."""
        name = COUNTED_AS[summary.state]
        setattr(self.planned, name, getattr(self.planned, name) + 1)

    def _add(self, unit: Unit) -> None:
        requests = self._translator.add(None, unit)
        self.planned.units += 1
        self.planned.characters += len(unit.text)
        self.planned.repeated += not requests and any(map(str.isalpha, unit.text))
        self._requests += requests
        while requests:  # each text serves as its own translation, so that no unit remains pending
            requests = [more for each in requests for more in self._translator.answer(each, SentenceTranslation(each.text))]

    def _look_up(self) -> None:
        self.planned.segments += len(self._requests)
        if self._stored is not None:
            self.planned.remembered += len(self._stored.find(self._requests))
        self._requests.clear()
