"""The `triptych` command with a server, and in pipelines."""

import json
import subprocess
from pathlib import Path

import pytest

from ..fixtures.toy import MODELS, PAIRS, SOURCE, SOURCES, TARGET, TARGETS, copy_bundle, tamper
from .support.processes import PATIENCE_SECONDS, ServerProcess, clean_environment, done, error_of, run, triptych

NOBODY = "127.0.0.1:1"


def test_a_server_translates_a_pipe(server: ServerProcess) -> None:
    stdin = "".join(f"{source}\n" for source in SOURCES)
    assert done(run("translate", "--server", server.address, stdin=stdin)).splitlines() == TARGETS


def test_a_server_streams(server: ServerProcess) -> None:
    result = run("translate", "--server", server.address, "--stream", "--max-length", "3", stdin=f"\n{SOURCE}\n")
    assert result.returncode == 0
    assert result.stdout.startswith("\n")
    assert TARGET.startswith(result.stdout.strip())
    assert result.stderr == "standard input:2: the translation reached its length limit and is incomplete\n"


BAD = [
    (["a", "1 " * 50], "text 2: 101 tokens are too long for one sentence, the model takes at most 64 tokens; it begins"),
    (
        ["--stream", "a", "1 " * 50],
        "text 2: 101 tokens are too long for one sentence, the model takes at most 64 tokens; it begins",
    ),
    (["--model", "foo", "a"], "NOT_FOUND: model 'foo' not found; available: toy (request "),
    (["--target-language", "german", "a"], "INVALID_ARGUMENT: target_language_code: 'german' is not a language code"),
    (["--max-length", "64", "a"], "INVALID_ARGUMENT: options.max_length: 64 is above the model's limit"),
]


@pytest.mark.parametrize(("arguments", "error"), BAD)
def test_what_a_server_refuses_is_one_line(server: ServerProcess, arguments: list[str], error: str) -> None:
    assert error_of(run("translate", "--server", server.address, *arguments)).startswith(error)


def test_a_server_that_is_not_there_is_one_line() -> None:
    assert error_of(run("models", "--server", NOBODY)).startswith("UNAVAILABLE: failed to connect")


def test_models_of_a_server(server: ServerProcess) -> None:
    table = done(run("models", "--server", server.address)).splitlines()
    assert table[0].split() == [
        *("name", "version", "called", "default", "task", "languages", "labels", "limits", "precisions", "devices", "state")
    ]
    row = ("toy", "1", "yes", "translation", "en", "to", "de", "64", "tokens", "fp32,", "int8", "cpu", "ready")
    assert table[1].split() == [*row]


def test_models_of_a_server_as_json_with_the_broken_ones(tmp_path: Path) -> None:
    copy_bundle(tmp_path, "good")
    tamper(copy_bundle(tmp_path, "bad") / "tokenizer.json")
    with ServerProcess(tmp_path) as server:
        bad, good = json.loads(done(run("models", "--server", server.address, "--json")))
    assert (good["name"], good["state"]) == ("good", "ready")
    assert bad["name"] == "bad"
    assert bad["state"].startswith("failed: ")
    assert "SHA-256" in bad["state"]


def test_a_server_is_evaluated(server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    assert json.loads(done(run("evaluate", "translation", "--server", server.address, "--json", pairs)))["bleu"] == 100.0


@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["lines", "stream"])
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(stream: list[str]) -> None:
    command = subprocess.Popen(
        triptych("translate", "--models", MODELS, *stream),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert command.stdin
    assert command.stdout
    assert command.stderr
    command.stdin.write(f"{SOURCE}\n".encode() * 3_000)
    command.stdin.close()
    assert command.stdout.readline().decode() == f"{TARGET}\n"
    command.stdout.close()
    assert command.stderr.read() == b""
    command.stderr.close()
    assert command.wait(PATIENCE_SECONDS) != 0


def test_a_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs a full disk")
    with open("/dev/full", "w") as full:
        for verb in (["translate", SOURCE], ["models"]):
            command = triptych(*verb, "--models", MODELS)
            result = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=clean_environment()
            )
            assert result.returncode == 1
            [line] = result.stderr.splitlines()
            assert line.endswith("No space left on device")
