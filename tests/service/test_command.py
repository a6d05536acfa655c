"""Commands that call a server, and commands in pipelines."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from ..fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS
from ..unit.cli.conftest import Run
from .support.processes import PATIENCE_SECONDS, ServerProcess, clean_environment, triptych


def test_translate_pipe(server: ServerProcess, run: Run) -> None:
    found = run("translate", "--server", server.address, stdin="".join(f"{source}\n" for source in SOURCES[:64]).encode())
    assert found.success.splitlines() == TARGETS[:64]


def test_stream_with_length_limit(server: ServerProcess, run: Run) -> None:
    stdin = f"\n{SOURCE}\n".encode()
    result = run("translate", "--server", server.address, "--stream", "--max-length", "3", stdin=stdin)
    assert result.code == 0
    assert result.out.startswith("\n")
    assert TARGET.startswith(result.out.strip())
    assert result.err == "standard input:2: the translation reached its length limit and is incomplete\n"


@pytest.mark.parametrize(
    "command",
    [
        ["translate", "a"],
        ["translate", "--stream", "a"],
        ["score", "a", "b"],
        ["fill", "a [MASK]"],
        ["rerank", "a", "b"],
        ["generate", "a"],
        ["attend", "a"],
        ["interpolate-images", __file__, __file__, "-o", "images.png"],
    ],
)
def test_every_command_can_name_a_version(
    server: ServerProcess, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run(*command, "--server", server.address, "--model-version", "9").error
    assert error.startswith("NOT_FOUND: version '9' of any model not found; available: ")


def test_list_models(server: ServerProcess, run: Run) -> None:
    header, *lines = run("models", "--server", server.address).success.splitlines()
    assert header.split() == ["name", "version", "task", "details", "precisions", "state"]
    [toy] = [line for line in lines if line.startswith("toy ")]
    assert toy.split()[:3] == ["toy", "1", "translation"]
    assert {"fp32,", "int8", "ready"} <= set(toy.split())


@pytest.mark.parametrize("stream", [[], pytest.param(["--stream"], marks=pytest.mark.full)], ids=["lines", "stream"])
def test_closed_output_pipe_ends_the_command_without_a_message(stream: list[str]) -> None:
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
    fcntl.fcntl(command.stdout, fcntl.F_SETPIPE_SZ, 4_096)
    command.stdin.write(f"{SOURCE}\n".encode() * 500)  # more than the pipe and Python's buffer hold
    command.stdin.close()
    assert command.stdout.readline().decode() == f"{TARGET}\n"
    command.stdout.close()
    assert command.stderr.read() == b""
    command.stderr.close()
    assert command.wait(PATIENCE_SECONDS) != 0


def test_full_disk_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a process, too, which writes what Python still holds."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full:
        command = triptych("models", "--models", MODELS)
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=clean_environment())
        monkeypatch.setattr(sys, "stdout", full)
        translated = run("translate", SOURCE, "--models", MODELS)
    for code, errors in ((ended.returncode, ended.stderr), (translated.code, translated.err)):
        [line] = errors.splitlines()
        assert (code, line.endswith("No space left on device")) == (1, True)


def test_a_full_disk_is_an_error_that_names_the_file(run: Run, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    picture = tmp_path / "full.png"
    picture.symlink_to("/dev/full")
    for option in ("--html", "--png"):
        result = run("attend", "How are you?", option, picture)
        assert (result.code, result.error) == (1, f"{picture}: No space left on device")
