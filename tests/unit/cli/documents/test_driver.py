"""Units on their way through a translator."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from triptych_cli.documents.answers import Answers
from triptych_cli.documents.database import Database
from triptych_cli.documents.discovery import Found
from triptych_cli.documents.driver import Counts, Driver
from triptych_cli.documents.opened import Opened
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Code, Role, Unit
from triptych_embedded.request import BackendError
from triptych_embedded.translating import Outcome

from .fakes import Lines, Shouting, lines


class Entries:
    """People's translations."""

    def __init__(self, **entries: str) -> None:
        self.entries = entries

    def find(self, text: str) -> str | None:
        return self.entries.get(text)


class Bench:
    """A driver with a journal in memory; `run` returns the texts of the finished documents."""

    def __init__(
        self, translating: Shouting | None = None, human: Entries | None = None, path: Path = Path(":memory:")
    ) -> None:
        self.translating = translating or Shouting()
        self.human = human or Entries()
        self.database = Database(path)
        self.finished: list[Opened] = []
        self.counts = Counts()
        self.opened = 0

    def run(self, *documents: Lines, goes_on: Callable[[], bool] = lambda: True) -> bool:
        answers = Answers(self.database, self.translating.identity)
        driver = Driver(UnitTranslator(TranslationRules()), self.translating, answers, self.human, self.finished.append)
        self.counts = driver.counts
        return driver.run(self.open(documents), goes_on)

    def open(self, documents: Sequence[Lines]) -> Iterator[Opened]:
        for number, document in enumerate(documents):
            self.opened += 1
            yield Opened(Found(Path(str(number)), str(number), None), "", 100, document)

    @property
    def texts(self) -> dict[str, str]:
        return {opened.found.name: opened.document.render(opened.translations).decode() for opened in self.finished}


def test_documents_are_translated_and_finished_once() -> None:
    bench = Bench()
    assert bench.run(lines("one", "two"), lines(), lines("three", "", "4", "one"))
    assert bench.texts == {"0": "ONE\nTWO\n", "1": "", "2": "THREE\n\n4\nONE\n"}
    assert len(bench.finished) == 3
    assert sorted(ask.text for ask in bench.translating.asked) == ["one", "three", "two"]
    assert (bench.counts.translated, bench.counts.remembered) == (3, 0)


def test_no_document_is_opened_before_there_is_room_for_it() -> None:
    translating = Shouting(window=10)
    bench = Bench(translating)
    seen = []

    def goes_on() -> bool:
        seen.append(bench.opened - len(bench.finished))
        return True

    assert bench.run(*(lines(*(f"text {number} {line}" for line in range(5))) for number in range(40)), goes_on=goes_on)
    assert len(bench.finished) == 40
    assert max(seen) <= 5
    assert translating.most_under_way <= 14  # a unit is not cut in two


def test_what_is_remembered_is_not_asked(tmp_path: Path) -> None:
    first = Bench(path=tmp_path / "journal")
    first.run(lines("one", "two"))
    again = Bench(path=tmp_path / "journal")
    assert again.run(lines("two", "three", "one"))
    assert again.texts == {"0": "TWO\nTHREE\nONE\n"}
    assert [ask.text for ask in again.translating.asked] == ["three"]
    assert (again.counts.translated, again.counts.remembered) == (1, 2)


def test_a_stopped_job_keeps_what_it_has(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(100)]
    stopped = Bench(Shouting(window=20), path=tmp_path / "journal")
    assert not stopped.run(lines(*texts), goes_on=lambda: stopped.counts.translated < 30)
    assert stopped.finished == []
    again = Bench(path=tmp_path / "journal")
    assert again.run(lines(*texts))
    assert again.counts.remembered == stopped.counts.translated >= 30
    assert again.counts.translated == 100 - stopped.counts.translated
    assert again.texts["0"].splitlines() == [text.upper() for text in texts]


def test_a_refusal_leaves_the_source_and_is_not_remembered(tmp_path: Path) -> None:
    bench = Bench(path=tmp_path / "journal")
    assert bench.run(lines("one", "refuse"))
    assert bench.texts == {"0": "ONE\nrefuse\n"}
    [finding] = bench.finished[0].findings
    assert (finding.where, finding.severity.value) == ("line 2", "error")
    again = Bench(path=tmp_path / "journal")
    again.run(lines("refuse"))
    assert "refuse" in {ask.text for ask in again.translating.asked}


def test_people_go_before_the_machine() -> None:
    bench = Bench(human=Entries(one="eins", **{"It rains.": "Es regnet."}))
    assert bench.run(lines("one", "two", "It rains. It pours."))
    assert bench.texts == {"0": "eins\nTWO\nEs regnet. IT POURS.\n"}
    assert bench.counts.human == 2
    assert bench.finished[0].all_pairs[0].target == "eins"


def test_a_unit_with_codes_keeps_them_whatever_people_say() -> None:
    bold = (Code("<b>", Role.OPEN, 1), "one", Code("</b>", Role.CLOSE, 1))
    bench = Bench(human=Entries(one="eins"))
    assert bench.run(Lines([Unit(bold, "line 1")]))
    [pieces] = bench.finished[0].translations.values()
    assert [piece.raw for piece in pieces if isinstance(piece, Code)] == ["<b>", "</b>"]


def test_findings_and_pairs_are_in_the_document_s_order() -> None:
    bench = Bench(Shouting(window=50))
    bench.run(lines(*(f"refuse {number}" if number % 3 == 0 else f"text {number}" for number in range(12))))
    [opened] = bench.finished
    places = [int(finding.where.removeprefix("line ")) for finding in opened.findings if finding.severity.value == "error"]
    assert places == sorted(places)
    assert len(set(places)) == 4
    assert [pair.source.split()[-1] for pair in opened.all_pairs if "text" in pair.source] == [
        str(number) for number in range(12) if number % 3
    ]


def test_what_was_answered_before_the_translator_gave_up_is_kept(tmp_path: Path) -> None:
    class Failing(Shouting):
        def take(self, patience_seconds: float) -> list[Outcome]:
            if len(self.taken) >= 9:
                raise BackendError("gone")
            outcomes = super().take(patience_seconds)
            self.taken += outcomes
            return outcomes

    translating = Failing(window=50)
    translating.taken = []  # type: ignore[attr-defined]
    bench = Bench(translating, path=tmp_path / "journal")
    with pytest.raises(BackendError, match="gone"):
        bench.run(lines(*(f"text {number}" for number in range(40))))
    asks = [SentenceRequest(f"text {number}") for number in range(40)]
    with Database(tmp_path / "journal") as database:
        known = Answers(database, translating.identity).find(asks)
    assert len(known) == 9
    assert set(known.values()) <= {SentenceTranslation(ask.text.upper()) for ask in asks}
