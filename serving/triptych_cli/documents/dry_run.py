"""A dry run: count what a job would translate."""

from collections.abc import Callable
from dataclasses import dataclass, field

from triptych_cli.documents.document_files import DocumentFiles, DocumentState, DocumentSummary
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
    failed: int = 0
    units: int = 0
    repeated: int = 0  # units whose sentences occurred before
    characters: int = 0
    segments: int = 0  # different sentences
    remembered: int = 0  # of these, translated by an earlier run
    failures: list[DocumentSummary] = field(default_factory=list)  # not readable, or would replace files of others


def count_job(
    job: DocumentJob, identity: TranslatorIdentity | None, languages: tuple[str, str], continues: Callable[[], bool]
) -> PlannedWork:
    """Count what a job would translate; raises as `run_job` about journal, memory and TMX files.

    Args:
        identity: of the translator; None if neither journal nor memory has anything of it.
        languages: source and target, as the user named them.
        continues: called often; False stops.
    """
    source, target = (identity.source_language, identity.target_language) if identity else languages
    job = job.in_languages(source, target)
    human = HumanTranslations(job.store, job.tmx, source, target)
    stored = StoredTranslations(job.store, identity) if identity else None
    records = DocumentRecords(job.journal, job.settings(identity, human) if identity else "")
    planned, translator = PlannedWork(), UnitTranslator(job.rules)
    requests: list[SentenceRequest] = []

    def note(summary: DocumentSummary, _: int) -> None:
        name = COUNTED_AS[summary.state]
        setattr(planned, name, getattr(planned, name) + 1)
        if summary.state is DocumentState.FAILED:
            planned.failures.append(summary)

    def look_up() -> None:
        planned.segments += len(requests)
        planned.remembered += len(stored.find(requests)) if stored else 0
        requests.clear()

    for document in DocumentFiles(job.policy, records, note, reads_only=True).open(job.documents):
        planned.documents += 1
        for unit in document.document.units:
            requests += _count_unit(unit, translator, planned)
        translator.done()
        if len(requests) >= LOOKUP:
            look_up()
        if not continues():
            break
    look_up()
    return planned


def _count_unit(unit: Unit, translator: UnitTranslator, planned: PlannedWork) -> list[SentenceRequest]:
    """Count a unit and return its new requests."""
    new = requests = translator.add(None, unit)
    planned.units += 1
    planned.characters += len(unit.text)
    planned.repeated += not new and any(map(str.isalpha, unit.text))
    while requests:  # each text serves as its own translation, so that no unit remains pending
        requests = [more for each in requests for more in translator.answer(each, SentenceTranslation(each.text))]
    return new
