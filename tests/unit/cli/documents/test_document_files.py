"""Input and output files of jobs, whatever happened to them before."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from triptych_cli.documents import files
from triptych_cli.documents.document_files import NOT_OURS
from triptych_cli.documents.files import BILINGUAL, write_whole
from triptych_cli.documents.job import JobResult
from triptych_embedded.sentences import digest

from .fakes import UpperCaseTranslator, run, write

TSV = BILINGUAL["tsv"]


def states(result: JobResult) -> list[str]:
    return [summary.state.value for summary in result.documents]


def problems(result: JobResult) -> list[str]:
    return [finding.message for summary in result.documents for finding in summary.findings]


def content(out: Path) -> Mapping[str, str]:
    return {file.name: file.read_text() for file in sorted(out.glob("[!.]*"))}


def fail(*_: object) -> None:
    raise OSError("no space left")


def test_a_file_is_complete_before_it_is_renamed(tmp_path: Path) -> None:
    file, seen = tmp_path / "sub" / "a.txt", list[tuple[str, bool]]()
    write_whole(file, [b"on", b"e"], lambda hashed: seen.append((hashed, file.exists())))
    assert seen == [(digest("one"), False)]
    with pytest.raises(KeyError):
        write_whole(file, b"new", lambda hashed: {}[hashed])
    assert file.read_bytes() == b"one"


def test_links_are_followed_and_pipes_written_to(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("file")
    write_whole(link, b"one")
    assert (link.readlink(), (tmp_path / "file").read_bytes()) == (Path("file"), b"one")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"two")
    assert (os.read(reader, 9), pipe.is_fifo()) == (b"two", True)
    os.close(reader)


def test_folders_that_are_named_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n", "b.txt": "two\n"})
    monkeypatch.chdir(tmp_path)
    run(Path("in"), Path("out"))
    again = run(source, tmp_path / "out")
    assert states(again) == ["unchanged", "unchanged"]
    assert [summary.source for summary in again.documents] == [str(source / "a.txt"), str(source / "b.txt")]
    (tmp_path / "out").rename(tmp_path / "moved")
    moved = run(source, tmp_path / "moved")
    assert states(moved) == ["unchanged", "unchanged"]
    assert moved.documents[0].target == str(tmp_path / "moved" / "a.txt")


def test_one_journal_for_two_folders(tmp_path: Path) -> None:
    journal = str(tmp_path / "logs" / "journal")
    write(tmp_path, {"logs/x": "", "in/a.txt": "one\n", "other/a.txt": "two\n"})
    folders = [(tmp_path / "in", tmp_path / "out"), (tmp_path / "other", tmp_path / "further")]
    assert [states(run(*each, journal)) for each in folders] == [["translated"], ["translated"]]
    assert [states(run(*each, journal)) for each in folders] == [["unchanged"], ["unchanged"]]


def test_a_copy_is_replaced_by_a_translation(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.msg": "one\n"})
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["copied"]
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["unchanged"]
    assert states(run(source, tmp_path / "out", format_name="text")) == ["translated"]
    assert content(tmp_path / "out") == {"a.msg": "ONE\n"}


@pytest.mark.parametrize(("module", "function"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_write_keeps_the_old_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, function: str
) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n"})
    run(source, tmp_path / "out")
    write(source, {"a.txt": "two\n"})
    with monkeypatch.context() as broken:
        broken.setattr(module, function, fail)
        assert problems(run(source, tmp_path / "out")) == ["no space left"]
    assert content(tmp_path / "out") == {"a.txt": "ONE\n"}
    assert states(run(source, tmp_path / "out")) == ["translated"]
    assert content(tmp_path / "out") == {"a.txt": "TWO\n"}


def test_a_file_that_appears_during_the_job_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"a.txt": "one\n"})
    submit = UpperCaseTranslator.submit

    def edit(self: UpperCaseTranslator, requests: object) -> None:
        write(tmp_path / "out", {"a.txt": "by hand"})
        submit(self, requests)  # type: ignore[arg-type]

    monkeypatch.setattr(UpperCaseTranslator, "submit", edit)
    assert problems(run(source, tmp_path / "out")) == [f"{tmp_path / 'out' / 'a.txt'}: {NOT_OURS}"]
    assert content(tmp_path / "out") == {"a.txt": "by hand"}


def test_files_without_a_format_are_ignored_or_copied(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"photo.png": "PNG"})
    (source / "gone.png").symlink_to(tmp_path / "nowhere")
    write(tmp_path / "out", {"photo.png": "older"})
    assert states(run(source, tmp_path / "out")) == ["ignored", "ignored"]
    copied = run(source, tmp_path / "out", copies_others=True)
    assert states(copied) == ["failed", "failed"]
    assert problems(copied) == ["No such file or directory", f"{tmp_path / 'out' / 'photo.png'}: {NOT_OURS}"]


def test_files_are_copied_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {"film.mp4": "0123456789"})
    monkeypatch.setattr(files, "BLOCK", 3)
    monkeypatch.setattr(Path, "read_bytes", fail)
    assert states(run(source, tmp_path / "out", copies_others=True)) == ["copied"]
    assert content(tmp_path / "out") == {"film.mp4": "0123456789"}


def test_files_that_no_job_wrote_are_kept(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", {"a.txt": "one\n"}), write(tmp_path / "out", {"a.txt": "precious"})
    assert problems(run(source, out)) == [f"{out / 'a.txt'}: {NOT_OURS}"]
    assert content(out) == {"a.txt": "precious"}
    assert states(run(source, out, overwrites=True)) == ["translated"]
    write(out, {"a.txt": "edited"})
    assert problems(run(source, out)) == [f"{out / 'a.txt'}: {NOT_OURS}"]
    assert content(out) == {"a.txt": "edited"}
    source, out = write(tmp_path / "in", {"a.txt": "one\n"}), tmp_path / "bilingual"
    write(out, {"a.txt.tsv": "precious"})
    assert problems(run(source, out, bilingual=TSV)) == [f"{out / 'a.txt.tsv'}: {NOT_OURS}"]
    assert content(out) == {"a.txt.tsv": "precious"}
    assert states(run(source, out, bilingual=TSV, overwrites=True)) == ["translated"]
    assert content(out) == {"a.txt": "ONE\n", "a.txt.tsv": "en\tde\none\tONE\n"}
    assert states(run(source, out, bilingual=TSV)) == ["unchanged"]


def test_a_bug_in_a_format_costs_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recurse(*_: object) -> None:
        raise RecursionError("too deep")

    source = write(tmp_path / "in", {"a.txt": "one\n", "b.json": "{}"})
    monkeypatch.setattr("triptych_documents.formats.structured.json.read", recurse)
    result = run(source, tmp_path / "out")
    assert (states(result), problems(result)) == (["translated", "failed"], ["its format failed: RecursionError: too deep"])


def test_bilingual_files_are_written_again_with_their_document(tmp_path: Path) -> None:
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
