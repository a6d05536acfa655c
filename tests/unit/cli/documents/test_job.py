"""Jobs without a model: the loop over units, whole jobs, and garbage collection meanwhile."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from triptych_cli.documents.discovery import SourceFile
from triptych_cli.documents.document_files import OpenDocument
from triptych_cli.documents.job import SegmentCounts, TranslationLoop, rare_collections
from triptych_cli.documents.stored import Database, StoredTranslations
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_documents.unit import Code, Role, Unit
from triptych_embedded.request import BackendError
from triptych_embedded.sentences import SentenceOutcome

from .fakes import LineDocument, UpperCaseTranslator, lines, run, write


class WillingTranslator(UpperCaseTranslator):
    """Refuses nothing, and keeps the name that stands in for what must be kept."""

    def translate(self, request: SentenceRequest) -> SentenceTranslation:
        return SentenceTranslation(request.text.upper().replace("TOM", "Tom"))


class LoopRun:
    """A loop with a journal in memory; `texts` are those of the finished documents."""

    def __init__(
        self,
        translator: UpperCaseTranslator | None = None,
        human: Mapping[str, str] | None = None,
        path: Path = Path(":memory:"),
    ) -> None:
        self.translator = translator or UpperCaseTranslator()
        self.human = human or {}
        self.database = Database(path)
        self.finished: list[OpenDocument] = []
        self.counts = SegmentCounts()
        self.opened = 0

    def run(self, *documents: LineDocument, continues: Callable[[], bool] = lambda: True) -> bool:
        stored = StoredTranslations(self.database, self.translator.identity)
        loop = TranslationLoop(TranslationRules(), self.translator, stored, self.human.get, self.finished.append)
        self.counts = loop.counts
        return loop.run(self.open(documents), continues)

    def open(self, documents: Sequence[LineDocument]) -> Iterator[OpenDocument]:
        for number, document in enumerate(documents):
            self.opened += 1
            yield OpenDocument(SourceFile(Path(str(number)), str(number), None), "", 100, document)

    @property
    def texts(self) -> dict[str, str]:
        return {each.file.name: each.document.render(each.translations).decode() for each in self.finished}


def test_documents_are_finished_once_and_repeated_sentences_translated_once() -> None:
    run = LoopRun()
    assert run.run(lines("one", "two"), lines(), lines("three", "", "4", "one"))
    assert run.texts == {"0": "ONE\nTWO\n", "1": "", "2": "THREE\n\n4\nONE\n"}
    assert len(run.finished) == 3
    assert sorted(request.text for request in run.translator.requests) == ["one", "three", "two"]
    assert (run.counts.translated, run.counts.remembered) == (3, 0)


def test_documents_are_opened_when_there_is_room() -> None:
    translator = UpperCaseTranslator(window=10)
    run = LoopRun(translator)
    seen = []

    def continues() -> bool:
        seen.append(run.opened - len(run.finished))
        return True

    assert run.run(*(lines(*(f"text {number} {line}" for line in range(5))) for number in range(40)), continues=continues)
    assert len(run.finished) == 40
    assert max(seen) <= 5
    assert translator.most_pending <= 14  # a unit is not divided


def test_translations_are_stored_and_refusals_are_not(tmp_path: Path) -> None:
    LoopRun(path=tmp_path / "journal").run(lines("one", "two"))
    again = LoopRun(path=tmp_path / "journal")
    assert again.run(lines("two", "three", "one"))
    assert again.texts == {"0": "TWO\nTHREE\nONE\n"}
    assert [request.text for request in again.translator.requests] == ["three"]
    assert (again.counts.translated, again.counts.remembered) == (1, 2)
    run = LoopRun(path=tmp_path / "journal")
    assert run.run(lines("one", "refuse"))
    assert run.texts == {"0": "ONE\nrefuse\n"}
    [finding] = run.finished[0].findings
    assert (finding.where, finding.severity.value) == ("line 2", "error")
    again = LoopRun(path=tmp_path / "journal")
    again.run(lines("refuse"))
    assert "refuse" in {request.text for request in again.translator.requests}


def test_human_translations_take_precedence_and_keep_codes() -> None:
    run = LoopRun(human={"one": "eins", "It rains.": "Es regnet."})
    assert run.run(lines("one", "two", "It rains. It pours."))
    assert run.texts == {"0": "eins\nTWO\nEs regnet. IT POURS.\n"}
    assert run.counts.human == 2
    assert run.finished[0].all_pairs[0].target == "eins"
    run = LoopRun(human={"Yes! 🎉": "Ja! 🎉", "No": "Nein"})
    assert run.run(lines("Yes! 🎉 No 🎉"))
    assert run.texts == {"0": "Ja! 🎉 Nein 🎉\n"}
    bold = (Code("<b>", Role.OPEN, 1), "one", Code("</b>", Role.CLOSE, 1))
    run = LoopRun(human={"one": "eins"})
    assert run.run(LineDocument([Unit(bold, "line 1")]))
    assert [*run.finished[0].translations.values()] == [(bold[0], "eins", bold[2])]


@pytest.mark.parametrize(
    ("text", "entry", "translation"),
    [
        (
            "Hello. Dear {name}, welcome back.",
            ("Dear {name}, welcome back.", "Willkommen, {name}!"),
            "HELLO. Willkommen, {name}!",
        ),
        ("Hello.\nDear {name},  welcome.", ("Dear {name}, welcome.", "Willkommen, {name}!"), "HELLO.\nWillkommen, {name}!"),
        ("Hello. See <b>me</b> here.", ("See <b>me</b> here.", "Sieh mich."), "HELLO. Sieh mich."),
        ("Hello. See https://x.org/a now.", ("See Tom now.", "Tom ist da."), "HELLO. SEE https://x.org/a NOW."),
        ("See https://x.org/a now.", ("See Tom now.", "Tom ist da."), "SEE https://x.org/a NOW."),
    ],
)
def test_human_translations_are_found_by_the_text_of_the_document(text: str, entry: tuple[str, str], translation: str) -> None:
    run = LoopRun(WillingTranslator(), human=dict([entry]))
    assert run.run(lines(text))
    assert run.texts == {"0": f"{translation}\n"}
    assert run.counts.human == (entry[1] in translation)
    assert not run.finished[0].findings


def test_findings_and_pairs_are_in_document_order() -> None:
    run = LoopRun(UpperCaseTranslator(window=50))
    run.run(lines(*(f"refuse {number}" if number % 3 == 0 else f"text {number}" for number in range(12))))
    [document] = run.finished
    places = [int(finding.where.removeprefix("line ")) for finding in document.findings if finding.severity.value == "error"]
    assert places == sorted(places)
    assert len(set(places)) == 4
    translated = [pair.source.split()[-1] for pair in document.all_pairs if "text" in pair.source]
    assert translated == [str(number) for number in range(12) if number % 3]


def test_translations_before_a_failure_are_stored(tmp_path: Path) -> None:
    class FailingTranslator(UpperCaseTranslator):
        taken = 0

        def take(self, patience_seconds: float) -> list[SentenceOutcome]:
            if self.taken >= 9:
                raise BackendError("gone")
            outcomes = super().take(patience_seconds)
            self.taken += len(outcomes)
            return outcomes

    run = LoopRun(FailingTranslator(window=50), path=tmp_path / "journal")
    with pytest.raises(BackendError, match="gone"):
        run.run(lines(*(f"text {number}" for number in range(40))))
    requests = [SentenceRequest(f"text {number}") for number in range(40)]
    with Database(tmp_path / "journal") as database:
        known = StoredTranslations(database, run.translator.identity).find(requests)
    assert len(known) == 9
    assert set(known.values()) <= {SentenceTranslation(request.text.upper()) for request in requests}


def test_failed_sentences_are_tried_again(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", {"a.txt": "one\nrefuse\ntwo\n", "b.txt": "three\n"}), tmp_path / "out"
    assert run(source, out).errors == 1
    assert (tmp_path / "out" / "a.txt").read_text() == "ONE\nrefuse\nTWO\n"
    willing = WillingTranslator()
    second = run(source, out, translator=willing)
    assert second.errors == 0
    assert (tmp_path / "out" / "a.txt").read_text() == "ONE\nREFUSE\nTWO\n"
    assert [request.text for request in willing.requests] == ["refuse"]
    found = [(summary.state, Path(summary.target).name) for summary in second.documents]
    assert found == [("translated", "a.txt"), ("unchanged", "b.txt")]
    assert [summary.state for summary in run(source, out).documents] == ["unchanged", "unchanged"]


def test_a_job_that_is_stopped_repeatedly_completes(tmp_path: Path) -> None:
    texts = {f"{number:02}.txt": "".join(f"text {number} {line}\n" for line in range(7)) for number in range(20)}
    write(tmp_path / "in", texts)
    requests: list[SentenceRequest] = []
    for stops_after in range(5, 1_000):
        translator = UpperCaseTranslator()
        checks = iter([False] * stops_after)
        result = run(tmp_path / "in", tmp_path / "out", translator=translator, is_stopped=lambda: next(checks, True))  # noqa: B023
        requests += translator.requests
        if result.is_complete:
            break
    assert stops_after > 6
    written = {path.name: path.read_text() for path in (tmp_path / "out").glob("*.txt")}
    assert written == {name: text.upper() for name, text in texts.items()}
    assert set(requests) == {SentenceRequest(line) for text in texts.values() for line in text.splitlines()}
    assert len(requests) <= 140 + (stops_after - 5) * translator.window  # pending at each stop


def test_garbage_is_collected_less_often_during_a_job() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
