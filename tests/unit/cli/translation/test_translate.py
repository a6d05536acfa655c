"""`triptych translate`, with the engine in this process."""

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import click
import grpc
import pytest

from triptych_cli.common.lines import InputLine
from triptych_cli.translation import in_parts
from triptych_cli.translation.backend import Candidate, EmbeddedBackend, TextTranslation
from triptych_cli.translation.translate import TranslateJob
from triptych_client import call
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_embedded.request import BackendError, TranslationRequest

from ....fixtures.json_files import write_json
from ....fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS, copy_bundle, truncate
from ...client.fake_server import FakeServer, bad_field, fail, succeed
from ..conftest import Run

Toy = ("translate", "--models", MODELS)
BATCH = "triptych_cli.translation.backend.EmbeddedBackend.batch"


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def test_arguments_and_files_with_several_batches(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*Toy, SOURCES[0], SOURCES[9]).success == f"{TARGETS[0]}\n{TARGETS[9]}\n"
    monkeypatch.setattr(BATCH, 7)
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_bytes(lines(*SOURCES[:30]))
    assert run(*Toy, "-i", source, "-o", target).success == ""
    assert target.read_text(encoding="utf-8").splitlines() == TARGETS[:30]


@pytest.mark.parametrize(
    ("stdin", "out"),
    [
        (lines(*SOURCES[:40]), "".join(f"{target}\n" for target in TARGETS[:40])),
        (SOURCE.encode(), f"{TARGET}\n"),
        (b"", ""),
        (b"\xef\xbb\xbf" + f"{SOURCES[0]}\r\n{SOURCES[1]}\r\n".encode(), f"{TARGETS[0]}\n{TARGETS[1]}\n"),
    ],
    ids=["many", "no line break at the end", "empty", "byte order mark and CRLF"],
)
def test_a_pipe(run: Run, stdin: bytes, out: str) -> None:
    assert run(*Toy, stdin=stdin).success == out
    assert run(*Toy, "-i", "-", "-o", "-", stdin=stdin).success == out
    assert run(*Toy, "-", stdin=stdin).success == out


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_blank_lines_are_kept(run: Run, stream: list[str]) -> None:
    result = run(*Toy, *stream, stdin=lines("", SOURCES[1], "  ", "", SOURCES[2]))
    assert result.success == f"\n{TARGETS[1]}\n\n\n{TARGETS[2]}\n"


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_a_truncated_translation_is_reported_with_its_line(run: Run, stream: list[str]) -> None:
    result = run(*Toy, "--max-length", "3", *stream, stdin=lines("", SOURCE))
    assert result.code == 0
    assert TARGET.startswith(result.out.strip())
    assert result.err == "standard input:2: the translation reached its length limit and is incomplete\n"


def test_precision_languages_and_model_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_MODELS", str(MODELS))
    monkeypatch.setenv("TRIPTYCH_MODEL", "toy")
    languages = ("--source-language", "en-US", "--target-language", "deu_Latn")
    assert run("translate", "--precision", "int8", *languages, SOURCE).success == f"{TARGET}\n"


def test_a_version_is_chosen_by_its_number_or_label(run: Run, tmp_path: Path) -> None:
    copy_bundle(tmp_path, version=1)
    truncate(copy_bundle(tmp_path, version=2) / "search.fp32.onnx")
    write_json(tmp_path / "toy" / "model.json", {"labels": {"good": 1}})
    command = ("translate", "--models", tmp_path, "--precision", "fp32")
    for version in ("1", "good"):
        assert run(*command, "--model-version", version, SOURCE).success == f"{TARGET}\n"
    assert "search.fp32.onnx" in run(*command, SOURCE).error
    missing = "version '3' of toy is not in the repository; available: 1, 2, good"
    assert run(*command, "--model-version", "3", SOURCE).error == missing
    copy_bundle(tmp_path, "other")
    unnamed = f"version '1': name the model, too: {tmp_path} has none or several for translation"
    assert run(*command, "--model-version", "1", SOURCE).error == unnamed


def test_a_translation_is_one_line_whatever_the_model_produces(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def translate(texts: Sequence[str]) -> list[TextTranslation]:
        return [TextTranslation([Candidate("a\nb\rc", "stop", 3)], 1) for _ in texts]

    backend = nullcontext(SimpleNamespace(batch=10, translate=translate))
    monkeypatch.setattr("triptych_cli.translation.translate.open_backend", lambda request: backend)
    assert run("translate", "x").success == "a b c\n"


def test_a_streamed_line_ends_before_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TextTranslation([Candidate("A", "length", 1)], 1)
    backend: Any = SimpleNamespace(stream=lambda text: iter(["A", whole]))
    path, seen = tmp_path / "out.txt", list[str]()

    def look(*_: object, **__: object) -> None:
        seen.append(path.read_text(encoding="utf-8"))

    monkeypatch.setattr(click, "echo", look)
    with open(path, "w", encoding="utf-8") as output:
        job = TranslateJob(TranslationRequest(), backend, output, look, as_json=False)
        job.stream(iter([InputLine("a", "1"), InputLine("", "2", "not UTF-8"), InputLine("", "3", "not UTF-8")]))
    assert seen == ["A\n", "A\n", "A\n\n"]


LONG = "1 " * 50  # more tokens than the model takes
BAD_LINES = [
    pytest.param(b"b \xff", "not UTF-8 (invalid start byte at byte 2)", id="not UTF-8"),
    pytest.param(b"a" * 100_000, "'aaa", id="a word that cannot be split"),
]


@pytest.mark.parametrize("stream", [[], ["--stream"]])
@pytest.mark.parametrize(("bad", "problem"), BAD_LINES)
def test_a_bad_line_is_reported_and_empty(run: Run, stream: list[str], bad: bytes, problem: str) -> None:
    stdin = lines(SOURCES[1], "") + bad + b"\n" + lines(SOURCES[2])
    result = run(*Toy, *stream, stdin=stdin)
    assert result.code == 1
    assert result.err.startswith(f"standard input:3: {problem}")
    assert result.out == f"{TARGETS[1]}\n\n\n{TARGETS[2]}\n"
    if not stream:
        assert run(*Toy, "--fail-fast", stdin=stdin).error.startswith(f"standard input:3: {problem}")


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_a_long_sentence_is_translated_in_parts(run: Run, stream: list[str]) -> None:
    long = " ".join(source.strip(".") for source in SOURCES[1:20])
    text = run(*Toy, *stream, long, SOURCES[2]).success
    assert len(text.split()) > 30
    assert text.splitlines()[1] == TARGETS[2]
    assert "102 tokens are too long" in run(*Toy, "--split-sentences", "off", LONG).err


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_a_line_that_is_too_much_for_one_request_is_translated_in_parts(run: Run, stream: list[str]) -> None:
    too_much = fail(grpc.StatusCode.INVALID_ARGUMENT, "contents: 5,000 sentences", bad_field("contents"))
    with FakeServer(script=[too_much]) as server:
        assert run("translate", "--server", server.address, *stream, "A dog. A cat.").success == "A DOG. A CAT.\n"


def test_bad_lines_in_json_and_bad_arguments(run: Run) -> None:
    result = run(*Toy, "--json", SOURCES[1], LONG)
    assert (result.code, "text 2: 101 tokens" in result.err) == (1, True)
    assert json.loads(result.out.splitlines()[1])["error"].startswith("101 tokens are too long")
    assert run(*Toy, "a", " ").error == "text 2: the text is empty"
    assert run(*Toy, "a", "b \udcff").error == "text 2: not UTF-8 (invalid continuation byte at byte 2)"


def test_what_is_done_is_kept_and_resumed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BATCH, 2)
    file, target = tmp_path / "lines.txt", tmp_path / "out.txt"
    file.write_bytes(lines(*SOURCES[:6]))
    target.write_text("before", encoding="utf-8")
    translate = EmbeddedBackend.translate

    def fail(backend: EmbeddedBackend, texts: Sequence[str], *more: Any) -> Any:
        if SOURCES[4] in texts:
            raise BackendError("the server has gone")
        return translate(backend, texts, *more)

    monkeypatch.setattr(EmbeddedBackend, "translate", fail)
    result = run(*Toy, "-i", file, "-o", target)
    part = tmp_path / ".out.txt.unfinished"
    kept = f"what is done is kept in {part}; the same command with --resume continues"
    assert (result.code, result.err.splitlines()) == (1, [kept, "Error: the server has gone"])
    assert target.read_text(encoding="utf-8") == "before"
    monkeypatch.setattr(EmbeddedBackend, "translate", translate)
    with open(part, "a", encoding="utf-8") as unfinished:
        unfinished.write("half a li")
    assert run(*Toy, "-i", file, "-o", target, "--resume").success == ""
    assert target.read_text(encoding="utf-8").splitlines() == TARGETS[:6]
    assert not part.exists()
    part.write_text("a\n" * 7, encoding="utf-8")
    assert f"{part} has 7 lines, {file} only 6" in run(*Toy, "-i", file, "-o", target, "--resume").error
    assert f"{part} was written without --json" in run(*Toy, "-i", file, "-o", target, "--resume", "--json").error
    part.write_text('{"text": "a"}\n', encoding="utf-8")
    assert f"{part} was written with --json" in run(*Toy, "-i", file, "-o", target, "--resume").error
    os.utime(part, (0, 0))
    assert "has changed since" in run(*Toy, "-i", file, "-o", target, "--resume").error
    assert "--resume needs --input and --output" in run(*Toy, "--resume", "a").error


def test_a_lost_server_is_waited_for(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "FIRST_PAUSE_SECONDS", 0.001)
    file = tmp_path / "lines.txt"
    file.write_bytes(lines("a", "", "b", "c"))
    monkeypatch.setattr("triptych_cli.translation.backend.RemoteBackend.batch", 2)
    away = fail(grpc.StatusCode.UNAVAILABLE, "restarting")
    with FakeServer(script=[succeed, *[away] * 8]) as server:
        assert run("translate", "--server", server.address, "-i", file).success == "A\n\nB\nC\n"
        server.script = [away] * 8  # at first the address may be wrong
        assert "restarting" in run("translate", "--server", server.address, "-i", file).error
        server.script = [away] * 8
        assert "restarting" in run("translate", "--server", server.address, "--stream", "a").error
        server.script = []
        assert run("translate", "--server", server.address, "--stream", "a", "b").success == "A\nB\n"
        rejected = fail(grpc.StatusCode.INVALID_ARGUMENT, "too long", bad_field("contents[0]", "too long"))
        server.script = [rejected] * 2
        result = run("translate", "--server", server.address, "--json", "x", "y")
        assert (result.code, result.err) == (1, "text 1: too long\ntext 2: too long\n")


BAD_COMMANDS = [
    (["--model", "foo", "a"], 1, f"model 'foo' is not in {MODELS}; available: toy"),
    (["--precision", "fp16", "a"], 1, "precision 'fp16' is not in this bundle; it has: fp32, int8"),
    (["--target-language", "german", "a"], 1, "target_language_code: 'german' is not a language code"),
    (["--max-length", "64", "a"], 1, "options.max_length: 64 is above the model's limit of 63 tokens"),
    (["--no-such-option"], 2, "(see triptych translate --help)"),
    (["-i", "missing.txt"], 1, "missing.txt: cannot be read: No such file or directory"),
    (["-i", "a.txt", "text"], 2, "give texts or --input, not both"),
    (["-i", str(MODELS)], 2, "is a directory"),
    (["-o", "missing/out.txt", "a"], 1, "missing/out.txt: cannot be written: No such file or directory"),
    (["--server", "localhost:1", "a"], 2, "--models is for an engine in this process; with --server the server decides"),
]


@pytest.mark.parametrize(("arguments", "code", "error"), BAD_COMMANDS)
def test_a_bad_command_is_one_line(run: Run, arguments: list[str], code: int, error: str) -> None:
    result = run(*Toy, *arguments)
    assert result.code == code
    assert error in result.error


def test_faulty_repositories_and_files_are_named(run: Run, tmp_path: Path) -> None:
    result = run("translate", "--models", tmp_path / "missing", "a")
    assert (result.code, result.error) == (1, f"{tmp_path / 'missing'}: no such model repository")
    fault = truncate(copy_bundle(tmp_path) / "weights.fp32.bin")
    assert fault in run("translate", "--models", tmp_path, "a").error
    file = tmp_path / "text.txt"
    file.write_bytes(lines(SOURCE))
    assert run(*Toy, "-i", tmp_path / "missing.txt", "-o", file).code == 1
    assert run(*Toy, "-i", file, "-o", file).error.startswith("--output is the --input file")
    assert file.read_bytes() == lines(SOURCE)


SERVER = "localhost:1"
WHERE = [
    ([], {}, ""),
    (["--server", SERVER], {}, SERVER),
    ([], {"TRIPTYCH_SERVER": SERVER}, SERVER),
    (["--models", "m"], {"TRIPTYCH_SERVER": SERVER}, ""),
    (["--precision", "int8"], {"TRIPTYCH_SERVER": SERVER}, ""),
    (["--server", SERVER], {"TRIPTYCH_MODELS": "m", "TRIPTYCH_PRECISION": "int8"}, SERVER),
    ([], {"TRIPTYCH_SERVER": SERVER, "TRIPTYCH_MODELS": "m"}, SERVER),
]


@pytest.mark.parametrize(("arguments", "environment", "server"), WHERE)
def test_the_command_line_takes_precedence_over_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], server: str
) -> None:
    def remote(client: object, request: TranslationRequest) -> NoReturn:
        raise BackendError(f"server {request.server}")

    def embedded(request: TranslationRequest, capability: str) -> NoReturn:
        raise BackendError("server ")

    monkeypatch.setattr("triptych_cli.translation.backend.RemoteBackend", remote)
    monkeypatch.setattr("triptych_cli.translation.backend.open_engine", embedded)
    command = run  # it clears the environment when it is made
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert command("translate", *arguments, "a").error == f"server {server}".strip()


def test_terms_of_a_glossary_are_enforced(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("cat\tMieze\nrare\tselten\n", encoding="utf-8")
    lines = run("translate", "--glossary", file, "I have a cat.", "The cat sees {name}.").success.splitlines()
    assert all("Mieze" in line for line in lines)
    assert "{name}" in lines[1]
    assert run("translate", "--glossary", file, stdin=b"I have a cat.\n\n").success == f"{lines[0]}\n\n"
    for more in (["--json"], ["--stream"], ["--target-prefix", "Die"]):
        problem = "--glossary is not for --stream, --json or --target-prefix"
        assert problem in run("translate", "--glossary", file, *more, "I have a cat.").error
    file.write_text("cat\n", encoding="utf-8")
    assert f"{file}, line 1: expected source, tab, target, got 'cat'" in run("translate", "--glossary", file, "A cat.").error


def test_missing_terms_are_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("cat\tMieze\n", encoding="utf-8")
    finding = Finding(FindingKind.GLOSSARY, Severity.WARNING, "", "'cat' is not translated as 'Mieze': 'x'")
    plain = in_parts.DocumentDriver.advance

    def advance(driver: Any, results: Any) -> Any:
        return [replace(unit, findings=(finding,)) for unit in plain(driver, results)]

    monkeypatch.setattr(in_parts.DocumentDriver, "advance", advance)
    done = run("translate", "--glossary", file, "I have a cat.")
    assert (done.code, done.err) == (0, "text 1: 'cat' is not translated as 'Mieze': 'x'\n")
