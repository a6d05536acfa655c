"""`triptych translate`, with the engine in this process."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from triptych_embedded import request as module
from triptych_embedded.request import Candidate, Request, Translated

from ....fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS, copy_bundle, truncate
from ..conftest import Result, Run

Toy = ("translate", "--models", MODELS)


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def done(result: Result) -> str:
    """The output of a command that has nothing to complain of."""
    assert (result.code, result.err) == (0, "")
    return result.out


def test_arguments(run: Run) -> None:
    assert done(run(*Toy, SOURCES[0], SOURCES[9])) == f"{TARGETS[0]}\n{TARGETS[9]}\n"


def test_a_pipe(run: Run) -> None:
    assert done(run(*Toy, stdin=lines(*SOURCES))).splitlines() == TARGETS


def test_a_last_line_without_an_end(run: Run) -> None:
    assert done(run(*Toy, stdin=SOURCE.encode())) == f"{TARGET}\n"


def test_an_empty_pipe(run: Run) -> None:
    assert done(run(*Toy, stdin=b"")) == ""


def test_files(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_bytes(lines(*SOURCES[:30]))
    assert done(run(*Toy, "-i", source, "-o", target)) == ""
    assert target.read_text(encoding="utf-8").splitlines() == TARGETS[:30]


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_blank_lines_are_kept(run: Run, stream: list[str]) -> None:
    result = run(*Toy, *stream, stdin=lines("", SOURCES[1], "  ", "", SOURCES[2]))
    assert done(result) == f"\n{TARGETS[1]}\n\n\n{TARGETS[2]}\n"


def test_a_stream_is_the_same_text(run: Run) -> None:
    assert done(run(*Toy, "--stream", *SOURCES[:5])).splitlines() == TARGETS[:5]


def test_line_ends_and_byte_order_marks_of_other_systems(run: Run) -> None:
    stdin = b"\xef\xbb\xbf" + f"{SOURCES[0]}\r\n{SOURCES[1]}\r\n".encode()
    assert done(run(*Toy, stdin=stdin)).splitlines() == TARGETS[:2]


def test_more_lines_than_one_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_embedded.models.EmbeddedBackend.batch", 7)
    assert done(run(*Toy, stdin=lines(*SOURCES[:30]))).splitlines() == TARGETS[:30]


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_a_truncated_translation_is_reported_with_its_line(run: Run, stream: list[str]) -> None:
    result = run(*Toy, "--max-length", "3", *stream, stdin=lines("", SOURCE))
    assert result.code == 0
    assert TARGET.startswith(result.out.strip())
    assert result.err == "standard input:2: the translation reached its length limit and is incomplete\n"


def test_int8_on_request(run: Run) -> None:
    assert done(run(*Toy, "--precision", "int8", SOURCE)) == f"{TARGET}\n"


def test_languages_of_every_kind(run: Run) -> None:
    assert done(run(*Toy, "--source-language", "en-US", "--target-language", "deu_Latn", SOURCE)) == f"{TARGET}\n"


def test_options_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_MODELS", str(MODELS))
    monkeypatch.setenv("TRIPTYCH_MODEL", "toy")
    assert done(run("translate", SOURCE)) == f"{TARGET}\n"


def test_a_translation_is_one_line_whatever_the_model_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Talkative:
        batch = 10

        def __enter__(self) -> "Talkative":
            return self

        def __exit__(self, *details: object) -> None:
            """Nothing to close."""

        def translate(self, texts: Sequence[str]) -> list[Translated]:
            return [Translated([Candidate("a\nb\rc", "stop", 3)], 1) for _ in texts]

    monkeypatch.setattr("triptych_cli.translation.translate.open_backend", lambda request: Talkative())
    assert done(run("translate", "x")) == "a b c\n"


BAD_TEXTS = [
    pytest.param([""], b"", "text 1: the text is empty", id="empty argument"),
    pytest.param(["a", " "], b"", "text 2: the text is empty", id="blank argument"),
    pytest.param(["a", "b \udcff"], b"", "text 2: not UTF-8", id="argument that is not UTF-8"),
    pytest.param([], b"a\nb \xff\n", "standard input:2: not UTF-8 (invalid start byte at byte 2)", id="line that is not"),
    pytest.param(
        ["a", "1 " * 50], b"", "text 2: 101 tokens are too long for one sentence, the model takes", id="long argument"
    ),
    pytest.param([], lines("a", "", "1 " * 50), "standard input:3: 101 tokens are too long", id="long line"),
    pytest.param(["--stream"], lines("a", "", "1 " * 50), "standard input:3: 101 tokens are too long", id="long line, stream"),
    pytest.param([], lines("a" * 100_000), "standard input:1: 100,000 characters are too long", id="endless line"),
]


@pytest.mark.parametrize(("arguments", "stdin", "error"), BAD_TEXTS)
def test_a_bad_text_is_named_with_its_place(run: Run, arguments: list[str], stdin: bytes, error: str) -> None:
    result = run(*Toy, *arguments, stdin=stdin)
    assert result.code == 1
    assert result.error.startswith(error)


def test_a_bad_line_of_a_file_is_named_with_the_file(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "latin-1.txt"
    source.write_bytes("a\nMädchen\n".encode("latin-1"))
    result = run(*Toy, "-i", source)
    assert (result.code, result.error) == (1, f"{source}:2: not UTF-8 (invalid continuation byte at byte 1)")


def test_lines_before_a_bad_one_are_written_batch_by_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_embedded.models.EmbeddedBackend.batch", 2)
    result = run(*Toy, stdin=lines(*SOURCES[:3], "1 " * 50))
    assert result.out.splitlines() == TARGETS[:2]
    assert result.error.startswith("standard input:4: ")


BAD_COMMANDS = [
    (["--model", "foo", "a"], 1, f"model 'foo' is not in {MODELS}; available: toy"),
    (["--precision", "fp16", "a"], 1, "precision 'fp16' is not in this bundle; it has: fp32, int8"),
    (["--target-language", "fr", "a"], 1, "no model translates any language to fr"),
    (["--target-language", "german", "a"], 1, "target_language_code: 'german' is not a language code"),
    (["--max-length", "64", "a"], 1, "options.max_length: 64 is above the model's limit of 63 tokens"),
    (["--max-length", "0", "a"], 2, "0 is not in the range 1<=x<="),
    (["--no-such-option"], 2, "(see triptych translate --help)"),
    (["-i", "missing.txt"], 1, "missing.txt: cannot be read: No such file or directory"),
    (["-i", "a.txt", "text"], 2, "give texts or --input, not both"),
    (["-i", str(MODELS)], 2, "is a directory"),
    (["-o", "missing/out.txt", "a"], 1, "missing/out.txt: cannot be written: No such file or directory"),
    (["--server", "localhost:1", "a"], 2, "--models is for an engine in this process; with --server the server decides"),
]


@pytest.mark.parametrize(("arguments", "code", "error"), BAD_COMMANDS)
def test_a_bad_command_is_refused_in_one_line(run: Run, arguments: list[str], code: int, error: str) -> None:
    result = run(*Toy, *arguments)
    assert result.code == code
    assert error in result.error


def test_a_server_decides_on_its_precision(run: Run) -> None:
    result = run("translate", "--server", "localhost:1", "--precision", "int8", "a")
    assert result.code == 2
    assert result.error.startswith("--precision is for an engine in this process; with --server the server decides")


def test_a_missing_repository_is_named(run: Run, tmp_path: Path) -> None:
    result = run("translate", "--models", tmp_path / "missing", "a")
    assert (result.code, result.error) == (1, f"{tmp_path / 'missing'}: no such model repository")


def test_a_damaged_model_is_named_with_its_faults(run: Run, tmp_path: Path) -> None:
    fault = truncate(copy_bundle(tmp_path) / "weights.fp32.bin")
    assert fault in run("translate", "--models", tmp_path, "a").error


def test_a_missing_input_costs_no_output(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    assert run(*Toy, "-i", tmp_path / "missing.txt", "-o", target).code == 1
    assert target.read_text() == "precious"


def test_a_file_is_not_translated_onto_itself(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(lines(SOURCE))
    assert run(*Toy, "-i", file, "-o", file).error.startswith("--output is the --input file")
    assert file.read_bytes() == lines(SOURCE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_named(run: Run) -> None:
    assert run(*Toy, "-o", "/dev/full", SOURCE).error == "/dev/full: cannot be written: No space left on device"


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
def test_the_command_line_counts_more_than_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], server: str
) -> None:
    opened: list[str] = []

    def remote(request: Request) -> None:
        opened.append(request.server)
        raise module.BackendError("as far as this goes")

    def embedded(request: Request, repository: Path) -> None:
        opened.append("")
        raise module.BackendError("as far as this goes")

    monkeypatch.setattr("triptych_cli.translation.remote.RemoteBackend", remote)
    monkeypatch.setattr("triptych_embedded.models.EmbeddedBackend", embedded)
    command = run  # which clears the environment when it is made
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert command("translate", *arguments, "a").error == "as far as this goes"
    assert opened == [server]
