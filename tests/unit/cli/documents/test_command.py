"""`triptych translate-docs`, with the engine in this process."""

import json
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from pathlib import Path

import pytest

from triptych_embedded import sentence_translator as embedded
from triptych_embedded.models import open_registry
from triptych_serving.repository.registry import Registry

from ....fixtures.toy import MODELS, PAIRS, SOURCES, TARGETS
from ..conftest import Result, Run
from .fakes import write

Toy = ("--models", MODELS)
FEW = {"a.txt": "".join(f"{source}\n" for source in SOURCES[:5]), "sub/b.txt": f"{SOURCES[7]}\n\n{SOURCES[2]}\n"}
TRANSLATED = {"a.txt": "".join(f"{target}\n" for target in TARGETS[:5]), "sub/b.txt": f"{TARGETS[7]}\n\n{TARGETS[2]}\n"}
LONG = " ".join(["man"] * 200)


def done(result: Result) -> str:
    assert (result.code, result.err) == (0, "")
    return result.out


def content(out: Path) -> dict[str, str]:
    files = [file for file in out.rglob("*") if file.is_file() and not file.name.startswith(".")]
    return {file.relative_to(out).as_posix(): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture(scope="module")
def loaded() -> Iterator[Callable[..., Registry]]:
    """Loads each model once, not for each command."""
    open_once = cache(open_registry)
    opened: list[Registry] = []

    def open_(*arguments: Hashable) -> Registry:
        registry = open_once(*arguments)
        if registry not in opened:
            opened.append(registry)
        return registry

    yield open_
    for registry in opened:
        Registry.close(registry, drain=False)


@pytest.fixture(autouse=True)
def _keep_loaded(monkeypatch: pytest.MonkeyPatch, loaded: Callable[..., Registry]) -> None:
    monkeypatch.setattr(embedded, "open_registry", loaded)
    monkeypatch.setattr(embedded.EmbeddedTranslating, "__exit__", lambda *_: None)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in", FEW)


def test_a_folder(run: Run, source: Path, tmp_path: Path) -> None:
    out = done(run("translate-docs", *Toy, source, "--out", tmp_path / "out"))
    assert content(tmp_path / "out") == TRANSLATED
    [documents, segments] = out.splitlines()
    assert documents == "documents: 2 translated"
    assert segments.startswith("segments: 7 (6 translated, 0 remembered) in ")


def test_files(run: Run, source: Path, tmp_path: Path) -> None:
    done(run("translate-docs", *Toy, source / "a.txt", source / "sub" / "b.txt", "--out", tmp_path / "out"))
    assert content(tmp_path / "out") == {"a.txt": TRANSLATED["a.txt"], "b.txt": TRANSLATED["sub/b.txt"]}


def test_again_nothing_is_done(run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out")
    done(run(*arguments))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.txt")}
    monkeypatch.setattr(embedded.EngineAsking, "submit", None)
    assert done(run(*arguments)).splitlines()[0] == "documents: 2 unchanged"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.txt")} == before


def test_only_what_has_changed_is_translated(run: Run, source: Path, tmp_path: Path) -> None:
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out")
    done(run(*arguments))
    write(source, {"a.txt": FEW["a.txt"] + f"{SOURCES[9]}\n"})
    documents, segments = done(run(*arguments)).splitlines()
    assert documents == "documents: 1 translated, 1 unchanged"
    assert segments.startswith("segments: 6 (1 translated, 5 remembered)")
    assert content(tmp_path / "out")["a.txt"] == TRANSLATED["a.txt"] + f"{TARGETS[9]}\n"


def test_other_options_are_another_translation(run: Run, source: Path, tmp_path: Path) -> None:
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out")
    done(run(*arguments))
    result = run(*arguments, "--max-length", "3")
    assert result.out.splitlines()[0] == "documents: 2 translated"
    assert content(tmp_path / "out") != TRANSLATED


def test_a_memory_is_used_by_other_jobs(run: Run, source: Path, tmp_path: Path) -> None:
    memory = ("--memory", tmp_path / "memory")
    done(run("translate-docs", *Toy, source / "a.txt", "--out", tmp_path / "one", *memory))
    out = done(run("translate-docs", *Toy, source, "--out", tmp_path / "two", *memory))
    assert "(1 translated, 5 remembered)" in out
    assert content(tmp_path / "two") == TRANSLATED


def test_what_people_translated_goes_first(run: Run, source: Path, tmp_path: Path) -> None:
    tmx = tmp_path / "people.tmx"
    tmx.write_text(
        '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>'
        f'{SOURCES[0]}</seg></tuv><tuv xml:lang="de"><seg>Von Hand.</seg></tuv></tu></body></tmx>',
        encoding="utf-8",
    )
    expected = TRANSLATED["a.txt"].replace(TARGETS[0], "Von Hand.")
    out = done(run("translate-docs", *Toy, source / "a.txt", "--out", tmp_path / "one", "--memory", tmx))
    assert "(4 translated, 0 remembered, 1 from people)" in out
    assert content(tmp_path / "one") == {"a.txt": expected}
    assert "1 entries imported" in done(run("memory", "import", tmp_path / "memory", tmx))
    done(run("translate-docs", *Toy, source / "a.txt", "--out", tmp_path / "two", "--memory", tmp_path / "memory"))
    assert content(tmp_path / "two") == {"a.txt": expected}


def test_a_report(run: Run, source: Path, tmp_path: Path) -> None:
    done(run("translate-docs", *Toy, source, "--out", tmp_path / "out", "--report", tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["complete"]
    assert report["documents"] == {"translated": 2}
    assert report["model"]["model"] == "toy"
    assert report["segments"] == {"done": 7, "translated": 6, "remembered": 0, "human": 0}
    assert report["results"][1] == {
        "source": str(source / "sub" / "b.txt"),
        "target": str(tmp_path / "out" / "sub" / "b.txt"),
        "format": "text",
        "state": "translated",
        "units": 2,
        "segments": 2,
        "characters": len(SOURCES[7]) + len(SOURCES[2]),
        "findings": [],
    }


def test_a_document_that_cannot_be_read_does_not_stop_the_others(run: Run, source: Path, tmp_path: Path) -> None:
    (source / "a.txt").write_bytes(b"\xff\xfe\xff\xfe\xff \x00\xd8")
    result = run(
        "translate-docs", *Toy, source, "--out", tmp_path / "out", "--report", tmp_path / "report.json", "--encoding", "utf-8"
    )
    assert result.code == 1
    [problem] = result.err.splitlines()
    assert problem.startswith(f"{source / 'a.txt'}: ")
    assert result.out.splitlines()[0] == "documents: 1 translated, 1 failed"
    assert content(tmp_path / "out") == {"sub/b.txt": TRANSLATED["sub/b.txt"]}
    [failed, translated] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["results"]
    assert (failed["state"], translated["state"]) == ("failed", "translated")
    assert failed["findings"][0]["severity"] == "error"


def test_fail_fast(run: Run, source: Path, tmp_path: Path) -> None:
    (source / "a.txt").write_bytes(b"\xff\xfe\xff\xfe\xff \x00\xd8")
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out", "--fail-fast", "--encoding", "utf-8")
    assert result.code == 1
    assert content(tmp_path / "out") == {}


def test_a_format_that_fails_is_the_document_s_fault_alone(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    write(source, {"c.json": "{}"})
    monkeypatch.setattr("triptych_documents.formats.structured.json.read", fail)
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out")
    assert result.code == 1
    assert result.err == f"{source / 'c.json'}: its format failed: RecursionError: too deep\n"
    assert content(tmp_path / "out") == TRANSLATED


def test_files_of_others_are_not_replaced(run: Run, source: Path, tmp_path: Path) -> None:
    out = write(tmp_path / "out", {"a.txt": "precious"})
    arguments = ("translate-docs", *Toy, source, "--out", out)
    result = run(*arguments)
    assert result.code == 1
    assert result.err.startswith(f"{source / 'a.txt'}: exists already")
    assert content(out) == {**TRANSLATED, "a.txt": "precious"}
    done(run(*arguments, "--overwrite"))
    assert content(out) == TRANSLATED


def test_a_translation_that_somebody_has_edited_is_not_replaced(run: Run, source: Path, tmp_path: Path) -> None:
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out")
    done(run(*arguments))
    write(tmp_path / "out", {"a.txt": "edited"})
    assert run(*arguments).code == 1
    assert content(tmp_path / "out")["a.txt"] == "edited"


def test_others_are_listed_and_copied_on_request(run: Run, source: Path, tmp_path: Path) -> None:
    write(source, {"photo.png": "PNG"})
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out")
    assert done(run(*arguments)).splitlines()[0] == "documents: 2 translated, 1 ignored"
    assert "photo.png" not in content(tmp_path / "out")
    assert done(run(*arguments, "--copy-others")).splitlines()[0] == "documents: 2 unchanged, 1 copied"
    assert content(tmp_path / "out")["photo.png"] == "PNG"
    assert done(run(*arguments, "--copy-others")).splitlines()[0] == "documents: 3 unchanged"


def test_a_dry_run_counts_and_writes_nothing(run: Run, source: Path, tmp_path: Path) -> None:
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out", "--dry-run")
    characters = sum(map(len, (*SOURCES[:5], SOURCES[7], SOURCES[2])))
    assert done(run(*arguments, "--report", tmp_path / "plan.json")).splitlines() == [
        "documents: 2 to translate",
        f"units: 7 (1 repeated), {characters} characters",
        "segments: 6 to translate, 0 remembered",
    ]
    assert not (tmp_path / "out").exists()
    assert json.loads((tmp_path / "plan.json").read_text())["dry_run"]["segments"] == 6
    done(run(*arguments[:-1]))
    write(source, {"a.txt": FEW["a.txt"] + f"{SOURCES[9]}\n"})
    before = content(tmp_path / "out")
    assert done(run(*arguments)).splitlines()[0::2] == [
        "documents: 1 to translate, 1 done",
        "segments: 1 to translate, 5 remembered",
    ]
    assert content(tmp_path / "out") == before


def test_pairs_beside_each_document(run: Run, source: Path, tmp_path: Path) -> None:
    done(run("translate-docs", *Toy, source, "--out", tmp_path / "out", "--bilingual", "tsv"))
    rows = content(tmp_path / "out")["sub/b.txt.tsv"].splitlines()
    assert rows == ["en\tde", "\t".join(PAIRS[7]), "\t".join(PAIRS[2])]


def test_pairs_in_the_place_of_a_translation(run: Run, source: Path, tmp_path: Path) -> None:
    write(source, {"a.txt.tsv": f"{SOURCES[0]}\n"})
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out", "--bilingual", "tsv")
    assert result.code == 2
    assert f"would both become {tmp_path / 'out' / 'a.txt.tsv'}" in result.error


def test_a_link_to_nothing_costs_that_document_alone(run: Run, source: Path, tmp_path: Path) -> None:
    (source / "c.txt").symlink_to(tmp_path / "nowhere")
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out")
    assert (result.code, result.err) == (1, f"{source / 'c.txt'}: No such file or directory\n")
    assert content(tmp_path / "out") == TRANSLATED


def test_an_option_of_zero_is_another_translation(run: Run, source: Path, tmp_path: Path) -> None:
    arguments = ("translate-docs", *Toy, source, "--out", tmp_path / "out")
    done(run(*arguments))
    assert "(6 translated, 0 remembered)" in done(run(*arguments, "--length-penalty", "0"))


def test_a_sentence_that_the_model_cannot_take_whole(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.txt": f"{SOURCES[0]}\n{LONG}.\n"})
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out")
    first, second = content(tmp_path / "out")["a.txt"].splitlines()
    assert first == TARGETS[0]
    assert second
    assert result.code in (0, 1)


WRONG = [
    (("--concurrency", "3"), "--concurrency is for a server: name it with --server"),
    (("--placeholder", "("), "--placeholder '(': missing ), unterminated subpattern at position 0"),
    (("--memory", "one", "--memory", "two"), "--memory one and two: answers go into one; give others as .tmx files"),
]


@pytest.mark.parametrize(("arguments", "problem"), WRONG)
def test_usage_errors(run: Run, source: Path, tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out", *arguments)
    assert result.code == 2
    assert result.error.startswith(problem)


FAILING = [
    (("--model", "foo"), "model 'foo' is not in "),
    (("--target-language", "fr"), "no model translates any language to fr"),
    (("--beam-size", "99"), "options.beam_size"),
]


@pytest.mark.parametrize(("arguments", "problem"), FAILING)
def test_what_no_document_could_be_translated_with(
    run: Run, source: Path, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out", *arguments)
    assert result.code == 1
    assert result.error.startswith(problem)
    assert content(tmp_path / "out") == {}


def test_a_journal_that_is_none(run: Run, source: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("not a journal at all\n" * 100)
    result = run("translate-docs", *Toy, source, "--out", tmp_path / "out", "--journal", journal)
    assert result.code == 1
    assert result.error == f"{journal}: file is not a database"


@pytest.mark.parametrize(("kind", "name"), [("tmx", "a.txt.tmx"), ("xliff", "a.txt.xlf")])
def test_pairs_for_translators_tools(run: Run, source: Path, tmp_path: Path, kind: str, name: str) -> None:
    done(run("translate-docs", *Toy, source / "a.txt", "--out", tmp_path / "out", "--bilingual", kind))
    written = content(tmp_path / "out")[name]
    assert written.startswith("<?xml")
    assert all(text in written for pair in PAIRS[:5] for text in pair)


def test_a_memory_goes_out_and_in_again(run: Run, source: Path, tmp_path: Path) -> None:
    memory, file = tmp_path / "memory", tmp_path / "all.tmx"
    done(run("translate-docs", *Toy, source, "--out", tmp_path / "one", "--memory", memory))
    assert done(run("memory", "export", memory, file)) == f"{file}\n"
    assert done(run("memory", "export", memory, tmp_path / "people.tmx", "--people-only"))
    assert "<tu>" not in (tmp_path / "people.tmx").read_text(encoding="utf-8")
    assert done(run("memory", "import", tmp_path / "other", file)) == f"{tmp_path / 'other'}: 6 entries imported\n"
    out = done(run("translate-docs", *Toy, source, "--out", tmp_path / "two", "--memory", tmp_path / "other"))
    assert "(0 translated, 0 remembered, 7 from people)" in out
    assert content(tmp_path / "two") == TRANSLATED


def test_what_is_kept_comes_from_files(run: Run, source: Path, tmp_path: Path) -> None:
    keep, glossary = tmp_path / "keep.txt", tmp_path / "glossary.tsv"
    name = SOURCES[0].split()[1]
    keep.write_text(f"{name}\n", encoding="utf-8")
    run("translate-docs", *Toy, source / "a.txt", "--out", tmp_path / "out", "--keep", keep)
    assert name in content(tmp_path / "out")["a.txt"].splitlines()[0].split()
    glossary.write_text(f"{name}\tXYZ\n", encoding="utf-8")
    arguments = ("translate-docs", *Toy, source / "a.txt", "--out", tmp_path / "out", "--report", tmp_path / "report.json")
    run(*arguments, "--glossary", glossary)
    [result] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["results"]
    found = {finding["kind"] for finding in result["findings"] if finding["where"] == "line 1"}
    assert "XYZ" in content(tmp_path / "out")["a.txt"].splitlines()[0] or "glossary" in found
    glossary.write_text("no tab here\n", encoding="utf-8")
    failed = run(*arguments, "--glossary", glossary)
    assert failed.code == 1
    assert str(glossary) in failed.error
