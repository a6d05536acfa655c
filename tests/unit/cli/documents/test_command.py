"""`triptych translate-docs` and `triptych memory`, with the engine in this process."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from triptych import signals
from triptych.signals import handled_signals
from triptych_cli.documents.command import StopSignal
from triptych_embedded import engine
from triptych_embedded.models import open_registry
from triptych_serving.repository.registry import Registry

from ....fixtures.toy import MODELS, PAIRS, SOURCES, TARGETS
from ..conftest import Result, Run
from .fakes import write

FEW = {"a.txt": "".join(f"{source}\n" for source in SOURCES[:5]), "sub/b.txt": f"{SOURCES[7]}\n\n{SOURCES[2]}\n"}
TRANSLATED = {"a.txt": "".join(f"{target}\n" for target in TARGETS[:5]), "sub/b.txt": f"{TARGETS[7]}\n\n{TARGETS[2]}\n"}
TMX = '<tmx version="1.4"><header srclang="en"/><body><tu>{}</tu></body></tmx>'

Translate = Callable[..., Result]


@pytest.fixture(scope="module", autouse=True)
def _load_each_model_once() -> Iterator[None]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        open_once = cache(lambda *arguments: stack.enter_context(open_registry(*arguments)))

        @contextmanager
        def open_cached(*arguments: object) -> Iterator[Registry]:
            yield open_once(*arguments)

        patch.setattr(engine, "open_registry", open_cached)
        yield


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in", FEW)


@pytest.fixture
def translate(run: Run, tmp_path: Path) -> Translate:
    """Run the command with the output folder `out`, unless the arguments name another."""
    (tmp_path / "out").mkdir()

    def translate(*arguments: str | Path) -> Result:
        out = () if "--out" in arguments else ("--out", tmp_path / "out")
        return run("translate-docs", "--models", MODELS, *out, *arguments)

    return translate


def content(out: Path) -> dict[str, str]:
    files = [file for file in out.rglob("*") if file.is_file() and not file.name.startswith(".")]
    return {file.relative_to(out).as_posix(): file.read_text(encoding="utf-8") for file in files}


def test_a_folder_is_translated_once(
    translate: Translate, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, segments = translate(source).success.splitlines()
    assert content(tmp_path / "out") == TRANSLATED
    assert documents == "documents: 2 translated"
    assert segments.startswith("7 segments, 6 model calls including retries, 0 remembered, ")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.txt")}
    monkeypatch.setattr(engine.EngineSentenceTranslator, "submit", None)
    assert translate(source).success.splitlines()[0] == "documents: 2 unchanged"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.txt")} == before


def test_one_document_has_a_file_or_standard_output(translate: Translate, source: Path, tmp_path: Path) -> None:
    file, target = source / "a.txt", tmp_path / "a_de.txt"
    assert translate(file, "--out", target).code == 0
    assert target.read_text(encoding="utf-8") == TRANSLATED["a.txt"]
    assert translate(file, "--out", target).success.startswith("documents: 1 unchanged")
    assert content(tmp_path / "out") == {}
    result = translate(file, "--out", "-")
    assert (result.code, result.out) == (0, TRANSLATED["a.txt"])
    assert result.err.startswith("documents: 1 translated")
    assert translate(file, "--out", tmp_path / "folder").code == 0
    assert content(tmp_path / "folder") == {"a.txt": TRANSLATED["a.txt"]}
    for out in (target, "-"):
        for paths in ((source,), (file, source / "sub" / "b.txt")):
            assert f"--out {out} takes the translation of one document" in translate(*paths, "--out", out).error
    assert "--bilingual" in translate(file, "--out", "-", "--bilingual", "tsv").error
    assert "would be replaced by its own translation" in translate(file, "--out", file).error


@pytest.mark.parametrize(
    ("flags", "header"),
    [([], SOURCES[0]), (["--column", SOURCES[0]], SOURCES[0]), (["--no-header"], TARGETS[0])]
    + [(["--translate-header", *column], TARGETS[0]) for column in ([], ["--column", SOURCES[0]])],
)
def test_the_header_of_a_table_stays(translate: Translate, tmp_path: Path, flags: list[str], header: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"{SOURCES[0]}\n{SOURCES[1]}\n", encoding="utf-8")
    assert translate(table, "--out", "-", *flags).out == f"{header}\n{TARGETS[1]}\n"


def test_other_jobs_use_a_memory(translate: Translate, source: Path, tmp_path: Path) -> None:
    memory = ("--memory", tmp_path / "memory")
    translate(source / "a.txt", "--out", tmp_path / "one", *memory)
    assert "1 model call including retries, 5 remembered" in translate(source, "--out", tmp_path / "two", *memory).success
    assert content(tmp_path / "two") == TRANSLATED


def test_human_translations_take_precedence(run: Run, translate: Translate, source: Path, tmp_path: Path) -> None:
    tmx, memory = tmp_path / "people.tmx", tmp_path / "memory"
    variants = f'<tuv xml:lang="en"><seg>{SOURCES[0]}</seg></tuv><tuv xml:lang="de"><seg>Von Hand.</seg></tuv>'
    marked = '</tu><tu><tuv xml:lang="en"><seg>A <ph/></seg></tuv><tuv xml:lang="de"><seg>Ein</seg></tuv>'
    tmx.write_text(TMX.format(variants + marked), encoding="utf-8")
    assert "the memory comes first: triptych memory import" in run("memory", "import", tmx, memory).error
    assert run("memory", "import", memory, "none.tmx").error.startswith("none.tmx: no such file")
    assert not memory.exists()
    imported = run("memory", "import", memory, tmx)
    dropped = f"{tmx}: 1 entry dropped: 1 with inline markup\n"
    assert "1 entry imported" in imported.out
    assert (imported.code, imported.err) == (0, dropped)
    for number, file in enumerate((tmx, memory)):
        out = translate(source / "a.txt", "--out", tmp_path / str(number), "--memory", file).success
        assert (dropped in out) == (file == tmx)
        assert "4 model calls including retries, 0 remembered, 1 from people" in out
        assert content(tmp_path / str(number)) == {"a.txt": TRANSLATED["a.txt"].replace(TARGETS[0], "Von Hand.")}


def test_a_memory_is_exported_and_imported(run: Run, translate: Translate, source: Path, tmp_path: Path) -> None:
    memory, file, people, other = (tmp_path / name for name in ("memory", "all.tmx", "people.tmx", "other"))
    translate(source, "--out", tmp_path / "one", "--memory", memory)
    assert run("memory", "export", memory, file).success == f"{file}\n"
    assert run("memory", "export", memory, people, "--people-only").success
    assert "<tu>" not in people.read_text(encoding="utf-8")
    assert run("memory", "export", memory, "-").success == file.read_text(encoding="utf-8")
    assert f"{memory} is the memory itself" in run("memory", "export", memory, memory).error
    assert run("memory", "import", other, file).success == f"{other}: 6 entries imported\n"
    out = translate(source, "--out", tmp_path / "two", "--memory", other).success
    assert "0 model calls including retries, 0 remembered, 7 from people" in out
    assert content(tmp_path / "two") == TRANSLATED


def test_a_report_on_standard_output(translate: Translate, source: Path) -> None:
    shown = translate(source, "--report", "-")
    assert json.loads(shown.out)["documents"] == {"translated": 2}
    assert shown.err.startswith("documents: 2 translated\n")


def test_a_report(translate: Translate, source: Path, tmp_path: Path) -> None:
    assert translate(source, "--report", tmp_path / "report.json").success
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


def test_a_damaged_document_does_not_stop_the_others(translate: Translate, source: Path, tmp_path: Path) -> None:
    (source / "a.txt").write_bytes(b"\xff\xfe\xff\xfe\xff \x00\xd8")
    (source / "c.txt").symlink_to(tmp_path / "nowhere")
    flags = ("--report", tmp_path / "report.json", "--encoding", "utf-8")
    assert translate(source, "--fail-fast", *flags).code == 1
    assert content(tmp_path / "out") == {}
    result = translate(source, *flags)
    assert result.code == 1
    damaged, missing = result.err.splitlines()
    assert damaged.startswith(f"{source / 'a.txt'}: ")
    assert missing == f"{source / 'c.txt'}: No such file or directory"
    assert result.out.splitlines()[0] == "documents: 1 translated, 2 failed"
    assert content(tmp_path / "out") == {"sub/b.txt": TRANSLATED["sub/b.txt"]}
    results = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["results"]
    assert [each["state"] for each in results] == ["failed", "failed", "translated"]
    assert results[0]["findings"][0]["severity"] == "error"
    assert result.out.splitlines()[2] == "findings: 2 errors"
    assert translate(source, "--include", "a.txt", "--encoding", "utf-8").out.splitlines()[2] == "findings: 1 error"


def test_a_dry_run_counts_and_writes_nothing(translate: Translate, source: Path, tmp_path: Path) -> None:
    characters = sum(map(len, (*SOURCES[:5], SOURCES[7], SOURCES[2])))
    assert translate(source, "--dry-run", "--report", tmp_path / "plan.json").success.splitlines() == [
        "documents: 2 to translate",
        f"units: 7 (1 repeated), {characters} characters",
        "segments: 6 to translate, 0 remembered",
    ]
    assert not list((tmp_path / "out").iterdir())
    assert json.loads((tmp_path / "plan.json").read_text())["dry_run"]["segments"] == 6
    translate(source)
    write(source, {"a.txt": FEW["a.txt"] + f"{SOURCES[9]}\n"})
    before = content(tmp_path / "out")
    assert translate(source, "--dry-run").success.splitlines()[0::2] == [
        "documents: 1 to translate, 1 done",
        "segments: 1 to translate, 5 remembered",
    ]
    assert content(tmp_path / "out") == before


def test_a_dry_run_names_documents_that_cannot_be_done(translate: Translate, source: Path, tmp_path: Path) -> None:
    (source / "bad.txt").write_bytes(b"na\xefve\n")
    result = translate(source, "--dry-run", "--report", tmp_path / "plan.json")
    assert (result.code, result.out.splitlines()[0]) == (1, "documents: 2 to translate, 1 that cannot be done")
    assert "bad.txt: line 1: byte 0xEF at 2 is not valid utf-8" in result.err
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["dry_run"]["failed"] == 1
    assert [Path(each["source"]).name for each in plan["results"]] == ["bad.txt"]


@pytest.mark.parametrize(("name", "suffix"), [("tsv", "tsv"), ("tmx", "tmx"), ("xliff", "xlf")])
def test_bilingual_files(translate: Translate, source: Path, tmp_path: Path, name: str, suffix: str) -> None:
    assert translate(source, "--bilingual", name).success
    written = content(tmp_path / "out")[f"sub/b.txt.{suffix}"]
    assert written.startswith("en\tde\n" if name == "tsv" else "<?xml")
    assert all(text in written for pair in (PAIRS[7], PAIRS[2]) for text in pair)


def test_glossary_and_words_to_keep(translate: Translate, source: Path, tmp_path: Path) -> None:
    keep, glossary, report = (tmp_path / name for name in ("keep.txt", "glossary.tsv", "report.json"))
    name = SOURCES[0].split()[1]
    keep.write_text(f"{name}\n", encoding="utf-8")
    translate(source / "a.txt", "--keep", keep)
    assert name in content(tmp_path / "out")["a.txt"].splitlines()[0].split()
    glossary.write_text(f"{name}\tXYZ\n", encoding="utf-8")
    translate(source / "a.txt", "--report", report, "--glossary", glossary)
    [result] = json.loads(report.read_text(encoding="utf-8"))["results"]
    found = {finding["kind"] for finding in result["findings"] if finding["where"] == "line 1"}
    assert "XYZ" in content(tmp_path / "out")["a.txt"].splitlines()[0] or "glossary" in found
    glossary.write_text("no tab here\n", encoding="utf-8")
    result = translate(source / "a.txt", "--glossary", glossary)
    assert (result.code, str(glossary) in result.error) == (1, True)


BAD = [
    (("--server-wait-secs", "nan"), 2, "Invalid value for '--server-wait-secs'"),
    (("--concurrency", "3"), 2, "--concurrency is for a server: name it with --server"),
    (("--placeholder", "("), 2, "--placeholder '(': missing ), unterminated subpattern at position 0"),
    (
        ("--memory", "one", "--memory", "two"),
        2,
        "--memory one and two: new translations go into one memory; give the others as .tmx files",
    ),
    (("--model", "foo"), 1, "model 'foo' is not in "),
    (("--target-language", "fr"), 1, "no model translates any language to fr; available: en to de (toy)"),
    (("--source-language", "fr"), 1, "no model translates fr to any language; available: en to de (toy)"),
    (("--beam-size", "99"), 1, "options.beam_size"),
    (("--journal", __file__), 1, f"{__file__}: file is not a database"),
]


@pytest.mark.parametrize(("arguments", "code", "problem"), BAD)
def test_errors_that_stop_the_job(
    translate: Translate, source: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    result = translate(source, *arguments)
    assert result.code == code
    assert result.error.startswith(problem)
    assert content(tmp_path / "out") == {}


def test_a_job_that_cannot_start_makes_no_folder(translate: Translate, source: Path, tmp_path: Path) -> None:
    assert translate(source, "--out", tmp_path / "new", "--model", "foo").code == 1
    assert not (tmp_path / "new").exists()


def test_the_second_signal_ends_the_process() -> None:
    ended, raise_signal, stop = list[int](), signal.raise_signal, StopSignal()
    before = signal.getsignal(signal.SIGINT)
    times = iter([7.0, 7.1, 7.6])
    with pytest.MonkeyPatch.context() as patch, handled_signals(stop.note):
        patch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: next(times)))
        patch.setattr(signal, "raise_signal", ended.append)
        for number in (signal.SIGINT, signal.SIGTERM):  # timeout(1) signals its child, then its group
            raise_signal(number)
        assert (stop.exit_code, ended) == (130, [])
        raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert ended == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) == before
