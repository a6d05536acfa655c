"""A job: documents in, documents out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from triptych.version import __version__
from triptych_cli.documents.answers import Answers
from triptych_cli.documents.collecting import rare_collections
from triptych_cli.documents.database import Database
from triptych_cli.documents.desk import Desk, DeskRules
from triptych_cli.documents.discovery import Found
from triptych_cli.documents.driver import Counts, Driver
from triptych_cli.documents.human import Human
from triptych_cli.documents.progress import Progress
from triptych_cli.documents.records import Records
from triptych_cli.documents.summary import Summary
from triptych_documents.rules import TranslationRules
from triptych_documents.translation.units import UnitTranslator
from triptych_embedded.identity import Identity, canonical, digest
from triptych_embedded.translating import Translating


@dataclass(frozen=True)
class Job:
    """What is to be done.

    Args:
        documents: in this order.
        desk: what is done with files.
        rules: for their texts.
        journal: of the job.
        memory: where answers are looked for and kept, where that is not the journal.
        tmx: files of people's translations.
        fails_fast: end at the first error.
    """

    documents: Sequence[Found]
    desk: DeskRules
    rules: TranslationRules
    journal: Database
    memory: Database | None = None
    tmx: Sequence[Path] = ()
    fails_fast: bool = False


@dataclass
class Outcome:
    """What came of it."""

    identity: Identity
    counts: Counts = field(default_factory=Counts)
    documents: list[Summary] = field(default_factory=list)  # in the job's order
    is_complete: bool = False  # it was not stopped
    seconds: float = 0.0

    @property
    def errors(self) -> int:
        """Of all documents."""
        return sum(summary.errors for summary in self.documents)


def run_job(job: Job, translating: Translating, progress: Progress, is_stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Do it, or what is left of it.

    Args:
        job: what.
        translating: entered.
        progress: is told.
        is_stopped: asked often; True ends the job early, and the next one goes on from there.

    Raises:
        BackendError: the translator gave up.
        StoreError: journal or memory cannot be used.
        DocumentError: a TMX file cannot be read.
    """
    began = time.monotonic()
    identity = translating.identity
    job = in_languages(job, identity.source_language, identity.target_language)
    human = Human([job.memory or job.journal], job.tmx, identity.source_language, identity.target_language)
    records = Records(job.journal, settings(job, identity, human))
    outcome = Outcome(identity)

    def tell(summary: Summary, skipped: int) -> None:
        outcome.documents.append(summary)
        progress.finish(skipped)

    desk = Desk(job.desk, records, tell)
    driver = Driver(UnitTranslator(job.rules), translating, Answers(job.memory or job.journal, identity), human, desk.finish)
    outcome.counts = driver.counts

    def goes_on() -> bool:
        progress.show(driver.counts.done, desk.bytes_done)
        return not is_stopped() and not (job.fails_fast and outcome.errors)

    try:
        with rare_collections():
            outcome.is_complete = driver.run(desk.open(job.documents), goes_on)
    finally:
        progress.clear()
    order = {str(job.desk.out / found.name): index for index, found in enumerate(job.documents)}
    outcome.documents.sort(key=lambda summary: order[summary.target])
    outcome.seconds = time.monotonic() - began
    return outcome


def in_languages(job: Job, source: str, target: str) -> Job:
    """The job for these, which the model has settled."""
    rules = replace(job.rules, source_language=source, target_language=target)
    options = replace(job.desk.options, source_language=source, target_language=target)
    return replace(job, rules=rules, desk=replace(job.desk, options=options))


def settings(job: Job, identity: Identity, human: Human) -> str:
    """SHA-256 of all that a document's translation depends on beside the document."""
    values = {
        "release": __version__,
        "identity": identity.text,
        "rules": asdict(job.rules),
        "options": asdict(job.desk.options),
        "bilingual": job.desk.bilingual.name if job.desk.bilingual else "",
        "human": [*human.editions, *(digest(file.read_bytes()) for file in job.tmx)],
    }
    return digest(canonical(values))
