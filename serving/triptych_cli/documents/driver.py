"""Moves units through the translator: it is never without work while there is some, and nothing waits for a batch to end."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from triptych_cli.documents.answers import Answers
from triptych_cli.documents.opened import Opened
from triptych_documents.driver import DocumentDriver
from triptych_documents.sentences import SentencePair, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Unit
from triptych_embedded.translating import Outcome, Translating

WAIT_SECONDS = 0.2  # for outcomes, before somebody looks whether the job is to stop
COMMIT_SECONDS = 0.5  # no more work than this is lost with the process

Place = tuple[Opened, int]  # a document and the index of a unit


@dataclass
class Counts:
    """What a run has done so far."""

    done: int = 0  # sentences of units that are done
    translated: int = 0  # asks that the translator answered
    remembered: int = 0  # asks that an earlier run had answered
    human: int = 0  # units and asks that people had answered


class Human(Protocol):
    """Translations that people made."""

    def find(self, text: str) -> str | None:
        """That of a whole text."""
        ...


class Driver:
    """Of one thread.

    Args:
        translator: of this job.
        translating: entered.
        answers: of this translator.
        human: goes before the translator.
        finish: called with each document whose units are all done.
    """

    def __init__(
        self,
        translator: UnitTranslator,
        translating: Translating,
        answers: Answers,
        human: Human,
        finish: Callable[[Opened], None],
    ) -> None:
        self.counts = Counts()
        self._translator, self._translating, self._answers, self._human = translator, translating, answers, human
        self._finish = finish
        self._written = time.monotonic()

    def run(self, documents: Iterable[Opened], goes_on: Callable[[], bool]) -> bool:
        """Until all documents are finished, or the job is to stop; what is known by then is written. True where all are.

        Args:
            documents: opened when it is their turn.
            goes_on: called often; False: stop now.

        Raises:
            BackendError: the translator gave up.
            StoreError: the journal cannot be written.
        """
        driver = DocumentDriver(self._translator, self._units(documents, goes_on), window=self._translating.window, refill=0.25)
        results: Sequence[Outcome] = ()
        try:
            while goes_on():
                for done in driver.advance(results):
                    self._put(cast(Place, done.key), done)
                known = self._submit(driver.take())
                if driver.is_finished:
                    return goes_on()
                results = [*known, *self._receive(0.0 if known or driver.can_read else WAIT_SECONDS)]
                self._write()
            return False
        finally:
            self._answers.flush()

    def _units(self, documents: Iterable[Opened], goes_on: Callable[[], bool]) -> Iterator[tuple[Place, Unit]]:
        """Open the documents and yield the units that no human translation covers."""
        for document in documents:
            if not goes_on():  # there may be many with nothing to do
                return
            if not document.document.units:
                self._finish(document)
            for index, unit in enumerate(document.document.units):
                if (text := unit.plain) is None or (known := self._human.find(text)) is None:
                    yield (document, index), unit
                    continue
                self.counts.human += 1
                done = TranslatedUnit((document, index), unit, (known,), (SentencePair(text, known),), ())
                self._put((document, index), done)

    def _submit(self, requests: Sequence[SentenceRequest]) -> list[Outcome]:
        """Submit requests to the translator, and return the results that are known without it."""
        remembered = self._answers.find(requests) if requests else {}
        results: list[Outcome] = []
        new = []
        for request in requests:
            if (human := None if request.aligned else self._human.find(request.text)) is not None:
                self.counts.human += 1
                results.append((request, SentenceTranslation(human)))
            elif (answer := remembered.get(request)) is not None:
                self.counts.remembered += 1
                results.append((request, answer))
            else:
                new.append(request)
        if new:
            self._translating.submit(new)
        return results

    def _receive(self, patience_seconds: float) -> Sequence[Outcome]:
        outcomes = self._translating.take(patience_seconds)
        for request, outcome in outcomes:
            if isinstance(outcome, SentenceTranslation):
                self.counts.translated += 1
                self._answers.add(request, outcome)
        return outcomes

    def _put(self, place: Place, done: TranslatedUnit) -> None:
        document, index = place
        self.counts.done += len(done.pairs)
        if document.put(index, done.pieces, done.pairs, done.findings):
            self._finish(document)

    def _write(self) -> None:
        now = time.monotonic()
        if now - self._written >= COMMIT_SECONDS:
            self._answers.flush()
            self._written = now
