"""What becomes of files, whatever happened to them before."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from triptych_cli.documents import writing
from triptych_cli.documents.bilingual import KINDS
from triptych_cli.documents.database import Database
from triptych_cli.documents.desk import NOT_OURS, DeskRules
from triptych_cli.documents.discovery import Selection, discover
from triptych_cli.documents.job import Job, Outcome, run_job
from triptych_cli.documents.progress import Progress
from triptych_documents.format import ReadOptions
from triptych_documents.rules import TranslationRules

from .fakes import Shouting, write

TSV = KINDS["tsv"]


def run(source: Path, out: Path, journal: str = "", format_name: str = "", **rules: object) -> Outcome:
    out.mkdir(exist_ok=True)
    desk = DeskRules(out, ReadOptions(), **rules)  # type: ignore[arg-type]
    selection = Selection(format=format_name)
    found = discover([source], out, selection, desk.copies_others, desk.bilingual.suffix if desk.bilingual else "")
    with Database(Path(journal or out / ".journal"), alone=True) as database:
        return run_job(Job(found, desk, TranslationRules(), database), Shouting(), Progress(None, 1, 1))


def states(outcome: Outcome) -> list[str]:
    return [summary.state.value for summary in outcome.documents]


def problems(outcome: Outcome) -> list[str]:
    return [finding.message for summary in outcome.documents for finding in summary.findings]


def content(out: Path) -> Mapping[str, str]:
    return {file.name: file.read_text() for file in sorted(out.glob("[!.]*"))}


def test_a_folder_that_is_named_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n", "b.txt": "two\n"})
    monkeypatch.chdir(tmp_path)
    run(Path("in"), Path("out"))
    again = run(source, tmp_path / "out")
    assert states(again) == ["unchanged", "unchanged"]
    assert [summary.source for summary in again.documents] == [str(source / "a.txt"), str(source / "b.txt")]
    assert [summary.target for summary in again.documents] == [str(tmp_path / "out" / name) for name in ("a.txt", "b.txt")]


def test_a_folder_that_was_moved(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n"})
    run(source, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    again = run(source, tmp_path / "moved")
    assert states(again) == ["unchanged"]
    assert again.documents[0].target == str(tmp_path / "moved" / "a.txt")


def test_one_journal_for_two_folders(tmp_path: Path) -> None:
    journal = str(tmp_path / "logs" / "journal")
    write(tmp_path, {"logs/x": "", "in/a.txt": "one\n", "other/a.txt": "two\n"})
    folders = [(tmp_path / "in", tmp_path / "out"), (tmp_path / "other", tmp_path / "further")]
    assert [states(run(*each, journal)) for each in folders] == [["translated"], ["translated"]]
    assert [states(run(*each, journal)) for each in folders] == [["unchanged"], ["unchanged"]]


def test_another_format_is_another_translation(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.txt": "<b>one</b>\n"})
    run(source, tmp_path / "out")
    again = run(source, tmp_path / "out", format_name="html")
    assert (states(again), again.documents[0].format) == (["translated"], "html")


def test_a_copy_is_no_translation(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.msg": "one\n"})
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["copied"]
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["unchanged"]
    assert states(run(source, tmp_path / "out", format_name="text")) == ["translated"]
    assert content(tmp_path / "out") == {"a.msg": "ONE\n"}


@pytest.mark.parametrize(("module", "function"), [(os, "fsync"), (Path, "replace")])
def test_a_translation_that_could_not_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, function: str
) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n"})
    run(source, tmp_path / "out")
    write(source, {"a.txt": "two\n"})
    with monkeypatch.context() as broken:
        broken.setattr(module, function, _fail)
        assert problems(run(source, tmp_path / "out")) == ["no space left"]
    assert content(tmp_path / "out") == {"a.txt": "ONE\n"}
    assert states(run(source, tmp_path / "out")) == ["translated"]
    assert content(tmp_path / "out") == {"a.txt": "TWO\n"}


def _fail(*_: object) -> None:
    raise OSError("no space left")


def test_a_translation_that_is_edited_while_its_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n"})
    submit = Shouting.submit

    def edit(self: Shouting, asks: object) -> None:
        write(tmp_path / "out", {"a.txt": "by hand"})
        submit(self, asks)  # type: ignore[arg-type]

    monkeypatch.setattr(Shouting, "submit", edit)
    assert problems(run(source, tmp_path / "out")) == [NOT_OURS]
    assert content(tmp_path / "out") == {"a.txt": "by hand"}


def test_files_of_no_format_are_not_looked_at(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"photo.png": "PNG"})
    (source / "gone.png").symlink_to(tmp_path / "nowhere")
    write(tmp_path / "out", {"photo.png": "older"})
    assert states(run(source, tmp_path / "out")) == ["ignored", "ignored"]
    copied = run(source, tmp_path / "out", copies_others=True)
    assert states(copied) == ["failed", "failed"]
    assert problems(copied) == ["No such file or directory", NOT_OURS]


def test_others_are_copied_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"film.mp4": "0123456789"})
    monkeypatch.setattr(writing, "BLOCK", 3)
    monkeypatch.setattr(Path, "read_bytes", _fail)
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["copied"]
    assert content(tmp_path / "out") == {"film.mp4": "0123456789"}
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["unchanged"]


def test_a_link_to_nothing_fails_alone(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"b.txt": "two\n"})
    (source / "a.txt").symlink_to(tmp_path / "nowhere")
    assert states(run(source, tmp_path / "out")) == ["failed", "translated"]


def test_pairs_of_others_are_not_replaced(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", {"a.txt": "one\n"}), tmp_path / "out"
    write(out, {"a.txt.tsv": "precious"})
    assert problems(run(source, out, bilingual=TSV)) == [f"{out / 'a.txt.tsv'}: {NOT_OURS}"]
    assert content(out) == {"a.txt.tsv": "precious"}
    assert states(run(source, out, bilingual=TSV, overwrites=True)) == ["translated"]
    assert content(out) == {"a.txt": "ONE\n", "a.txt.tsv": "en\tde\none\tONE\n"}
    assert states(run(source, out, bilingual=TSV)) == ["unchanged"]


def test_pairs_are_written_again_with_their_document(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", {"a.txt": "one\n"}), tmp_path / "out"
    run(source, out, bilingual=TSV)
    write(source, {"a.txt": "two\n"})
    assert states(run(source, out, bilingual=TSV)) == ["translated"]
    (out / "a.txt.tsv").unlink()
    assert states(run(source, out, bilingual=TSV)) == ["translated"]
    assert content(out)["a.txt.tsv"] == "en\tde\ntwo\tTWO\n"
    write(out, {"a.txt.tsv": "reviewed"})
    assert states(run(source, out, bilingual=TSV)) == ["failed"]
    assert content(out)["a.txt.tsv"] == "reviewed"
