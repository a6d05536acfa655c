"""Whole jobs, without a model."""

from pathlib import Path

from triptych_cli.documents.database import Database
from triptych_cli.documents.desk import DeskRules
from triptych_cli.documents.discovery import Selection, discover
from triptych_cli.documents.job import Job, Outcome, run_job
from triptych_cli.documents.progress import Progress
from triptych_cli.documents.summary import State, Summary
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import ReadOptions
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation

from .fakes import Shouting, write


class Willing(Shouting):
    """Refuses nothing."""

    def answer(self, ask: SentenceRequest) -> SentenceTranslation | Refusal:
        return SentenceTranslation(ask.text.upper())


def run(folder: Path, translating: Shouting, stops_after: int | None = None) -> Outcome:
    """A job on `in`, with its journal in `out`; it is stopped once somebody has asked so often whether it is."""
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return stops_after is not None and asked > stops_after

    (folder / "out").mkdir(exist_ok=True)
    with Database(folder / "out" / ".journal", alone=True) as journal:
        found = discover([folder / "in"], folder / "out", Selection())
        job = Job(found, DeskRules(folder / "out", ReadOptions()), TranslationRules(), journal)
        return run_job(job, translating, Progress(None, 1, 1), is_stopped)


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.txt": "one\nrefuse\ntwo\n", "b.txt": "three\n"})
    first = run(tmp_path, Shouting())
    assert first.errors == 1
    assert (tmp_path / "out" / "a.txt").read_text() == "ONE\nrefuse\nTWO\n"
    willing = Willing()
    second = run(tmp_path, willing)
    assert second.errors == 0
    assert (tmp_path / "out" / "a.txt").read_text() == "ONE\nREFUSE\nTWO\n"
    assert [ask.text for ask in willing.asked] == ["refuse"]
    assert [(summary.state, Path(summary.target).name) for summary in second.documents] == [
        ("translated", "a.txt"),
        ("unchanged", "b.txt"),
    ]
    assert [summary.state for summary in run(tmp_path, Shouting()).documents] == ["unchanged", "unchanged"]


def test_a_job_that_is_stopped_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    texts = {f"{number:02}.txt": "".join(f"text {number} {line}\n" for line in range(7)) for number in range(20)}
    write(tmp_path / "in", texts)
    asked: list[SentenceRequest] = []
    for stops_after in range(5, 1_000):
        translating = Shouting()
        outcome = run(tmp_path, translating, stops_after)
        asked += translating.asked
        if outcome.is_complete:
            break
    assert stops_after > 6
    assert {path.name: path.read_text() for path in (tmp_path / "out").glob("*.txt")} == {
        name: text.upper() for name, text in texts.items()
    }
    assert set(asked) == {SentenceRequest(line) for text in texts.values() for line in text.splitlines()}
    assert len(asked) <= 140 + (stops_after - 5) * translating.window  # what was under way at each stop


def test_a_summary_survives_its_record() -> None:
    finding = Finding(FindingKind.PLACEHOLDER, Severity.WARNING, "line 3", "lost {name}")
    summary = Summary("a", "b", "text", State.TRANSLATED, 3, 4, 50, [finding])
    assert Summary.of(summary.values()) == summary
    assert summary.errors == 0
