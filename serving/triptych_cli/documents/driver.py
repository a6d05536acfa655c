"""Moves units through the translator: it is never without work while there is some, and nothing waits for a batch to end."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, cast

from triptych_cli.documents.answers import Answers
from triptych_cli.documents.opened import Opened
from triptych_documents.sentences import SentencePair, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Unit
from triptych_embedded.translating import Translating

WAIT_SECONDS = 0.2  # for outcomes, before somebody looks whether the job is to stop
COMMIT_SECONDS = 0.5  # no more work than this is lost with the process
FEED = 1_024  # units that are looked at together, where there is nothing to ask for them

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
        work: of this job.
        translating: entered.
        answers: of this translator.
        human: goes before the translator.
        finish: called with each document whose units are all done.
    """

    def __init__(
        self, work: UnitTranslator, translating: Translating, answers: Answers, human: Human, finish: Callable[[Opened], None]
    ) -> None:
        self.counts = Counts()
        self._work, self._translating, self._answers, self._human = work, translating, answers, human
        self._finish = finish
        self._under_way = 0
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
        units = self._units(documents, goes_on)
        try:
            while goes_on():
                fed = self._feed(units)
                if not fed and not self._under_way:
                    return goes_on()
                self._take(0.0 if fed else WAIT_SECONDS)
                self._write()
            return False
        finally:
            self._answers.flush()

    def _units(self, documents: Iterable[Opened], goes_on: Callable[[], bool]) -> Iterator[tuple[Place, Unit]]:
        for document in documents:
            if not goes_on():  # there may be many with nothing to do
                return
            if not document.document.units:
                self._finish(document)
            for index, unit in enumerate(document.document.units):
                yield (document, index), unit

    def _feed(self, units: Iterator[tuple[Place, Unit]]) -> bool:
        """Fill the translator's window. False where there was no room, or there are no more units."""
        room = self._translating.window - self._under_way
        if room * 4 < self._translating.window:  # a few at a time cost more
            return False
        fed, asks = False, []
        for place, unit in islice(units, max(FEED, room)):
            fed = True
            asks += self._add(place, unit)
            if len(asks) >= room:
                break
        self._ask(asks)
        self._collect()
        return fed

    def _add(self, place: Place, unit: Unit) -> list[SentenceRequest]:
        if (text := unit.plain) is None or (known := self._human.find(text)) is None:
            return self._work.add(place, unit)
        self.counts.human += 1
        self._put(place, TranslatedUnit(place, unit, (known,), (SentencePair(text, known),), ()))
        return []

    def _ask(self, asks: list[SentenceRequest]) -> None:
        """Of those who know, else of the translator; whose answers may lead to further asks."""
        while asks:
            known = self._answers.find(asks)
            further: list[SentenceRequest] = []
            new = []
            for ask in asks:
                if (human := None if ask.aligned else self._human.find(ask.text)) is not None:
                    self.counts.human += 1
                    further += self._work.answer(ask, SentenceTranslation(human))
                elif (answer := known.get(ask)) is not None:
                    self.counts.remembered += 1
                    further += self._work.answer(ask, answer)
                else:
                    new.append(ask)
            if new:
                self._under_way += len(new)
                self._translating.submit(new)
            asks = further

    def _take(self, patience_seconds: float) -> None:
        further: list[SentenceRequest] = []
        for ask, outcome in self._translating.take(patience_seconds):
            self._under_way -= 1
            if isinstance(outcome, SentenceTranslation):
                self.counts.translated += 1
                self._answers.add(ask, outcome)
            further += self._work.answer(ask, outcome)
        self._ask(further)
        self._collect()

    def _collect(self) -> None:
        for done in self._work.done():
            self._put(cast(Place, done.key), done)

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
