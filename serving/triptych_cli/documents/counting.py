"""A dry run: what a job would do."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from triptych_cli.documents.answers import Answers
from triptych_cli.documents.desk import Desk
from triptych_cli.documents.human import Human
from triptych_cli.documents.job import Job, in_languages, settings
from triptych_cli.documents.opened import Opened
from triptych_cli.documents.records import Records
from triptych_cli.documents.summary import State, Summary
from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Unit
from triptych_embedded.identity import Identity

NAMES = {State.UNCHANGED: "done", State.COPIED: "others", State.IGNORED: "others", State.FAILED: "failed"}
AT_ONCE = 1_024  # asks that are looked up together


@dataclass
class Planned:
    """Of the documents that are to be translated."""

    documents: int = 0
    done: int = 0  # an earlier run translated them
    others: int = 0  # no format reads them
    failed: int = 0  # cannot be read, or would replace what is not the job's
    units: int = 0
    repeated: int = 0  # units whose sentences occur before
    characters: int = 0
    segments: int = 0  # different sentences
    remembered: int = 0  # of these, what an earlier run was answered


def count_job(job: Job, identity: Identity | None, languages: tuple[str, str], goes_on: Callable[[], bool]) -> Planned:
    """What a job would do.

    Args:
        job: with a journal.
        identity: of the translator; None: neither journal nor memory have anything of it.
        languages: as the user named them, source first.
        goes_on: asked often; False: stop now.

    Raises:
        StoreError: journal or memory cannot be used.
        DocumentError: a TMX file cannot be read.
    """
    source, target = (identity.source_language, identity.target_language) if identity else languages
    job = in_languages(job, source, target)
    answers = Answers(job.memory or job.journal, identity) if identity else None
    human = Human([job.memory or job.journal], job.tmx, source, target)
    counting = Counting(UnitTranslator(job.rules), answers)
    records = Records(job.journal, settings(job, identity, human) if identity else "")
    desk = Desk(job.desk, records, lambda summary, _: counting.note(summary), reads_only=True)
    counting.count(desk.open(job.documents), goes_on)
    return counting.planned


class Counting:
    """Of one thread.

    Args:
        work: of this job; nothing is answered.
        answers: of the translator; None: there are none.
    """

    def __init__(self, work: UnitTranslator, answers: Answers | None) -> None:
        self.planned = Planned()
        self._work, self._answers = work, answers
        self._asks: list[SentenceRequest] = []

    def count(self, documents: Iterable[Opened], goes_on: Callable[[], bool]) -> None:
        """Documents that are to be translated."""
        for document in documents:
            self.planned.documents += 1
            for unit in document.document.units:
                self._add(unit)
            self._work.done()
            if len(self._asks) >= AT_ONCE:
                self._look_up()
            if not goes_on():
                break
        self._look_up()

    def note(self, summary: Summary) -> None:
        """A document that is not to be translated."""
        name = NAMES[summary.state]
        setattr(self.planned, name, getattr(self.planned, name) + 1)

    def _add(self, unit: Unit) -> None:
        asks = self._work.add(None, unit)
        self.planned.units += 1
        self.planned.characters += len(unit.text)
        self.planned.repeated += not asks and any(map(str.isalpha, unit.text))
        self._asks += asks
        while asks:  # all are their own translations, so that nothing is left to wait
            asks = [further for ask in asks for further in self._work.answer(ask, SentenceTranslation(ask.text))]

    def _look_up(self) -> None:
        self.planned.segments += len(self._asks)
        if self._answers is not None:
            self.planned.remembered += len(self._answers.find(self._asks))
        self._asks.clear()
