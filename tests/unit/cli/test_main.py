"""The entry point, and what all commands have in common."""

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from triptych.extras import install_command
from triptych_cli.main import COMMANDS, cli
from triptych_cli.serve.flags import SECTIONS
from triptych_client import __version__

from .conftest import Run


def test_version_and_help_of_the_program(run: Run) -> None:
    assert run("--version").out == f"triptych, version {__version__}\n"
    result = run()
    assert (result.code, result.err.startswith("Usage: triptych ")) == (2, True)
    result = run("sing")
    assert (result.code, result.error) == (2, "No such command 'sing' (see triptych --help)")
    assert run("translat").error == "no command 'translat'; did you mean translate? (see triptych --help)"
    assert run("translate", "--server").error.endswith("(see triptych translate --help)")
    assert "put -- before texts that begin with a dash" in run("translate", "- The printer is broken.").error


def test_help_lists_commands_without_importing_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {f"triptych_cli.{entry.module}" for entry in COMMANDS.values()}
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)
    text = run("--help").success
    assert all(f"{name}  " in text for name in COMMANDS)
    assert not modules & set(sys.modules)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    assert run(name, "--help").success.startswith(f"Usage: triptych {name} ")


@pytest.mark.parametrize("task", ["translation", "gpt", "elmo"])
def test_the_help_of_a_training_names_no_empty_default(run: Run, task: str) -> None:
    assert 'default: ""' not in run("train", task, "--help").success


def options_of(name: str) -> list[click.Option]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def test_every_option_of_serve_has_a_variable(run: Run) -> None:
    for option in options_of("serve"):
        assert option.name is not None
        assert option.name == "help_all" or option.envvar == f"TRIPTYCH_{option.name.upper()}"
        assert option.show_envvar or option.name == "help_all"
        assert option.help
    brief, text = run("serve", "--help").success, run("serve", "--help-all").success
    assert len(brief.splitlines()) <= 100
    assert all(f"\n{title}:\n" in brief for title in ("Network", "Models", "Limits", "Security", "Observability", "Devices"))
    listed = " ".join(part for parts in SECTIONS.values() for part in parts).split()
    assert sorted([*listed, "help_all"]) == sorted(option.name or "" for option in options_of("serve"))
    text = " ".join(text.split())
    assert "[env var: TRIPTYCH_PORT; default: 8001;" in text
    assert "[env var: TRIPTYCH_HOST; default: 0.0.0.0]" in text


def test_variables_are_consistent_and_checked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("translate", "fill", "classify", "embed", "serve", "models", "evaluate")
    pairs = {(option.envvar, option.name) for name in names for option in options_of(name) if option.envvar}
    assert len({variable for variable, _ in pairs}) == len(pairs)
    monkeypatch.setenv("TRIPTYCH_PORT", "many")
    result = run("serve")
    assert result.code == 2
    assert "TRIPTYCH_PORT" in result.error
    assert result.error.endswith("(see triptych serve --help-all)")  # --help leaves options out


def test_errors_name_the_variables_that_set_an_option(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TRIPTYCH_" not in run("serve", "--port", "x").error
    assert "TRIPTYCH_" not in run("serve", "--http-host", "x").error
    monkeypatch.setenv("TRIPTYCH_PORT", "x")
    assert "Invalid value for '--port' (env var: 'TRIPTYCH_PORT'): 'x' is not a whole number" in run("serve").error
    monkeypatch.setenv("TRIPTYCH_PORT", "0")
    monkeypatch.setenv("TRIPTYCH_HTTP_HOST", "localhost")
    message = "--http-host has no effect without --http-port; the environment variable TRIPTYCH_HTTP_HOST sets --http-host (see"
    assert run("serve").error.startswith(message)


@pytest.mark.parametrize(
    "command", [("generate", "--json-schema"), ("answer", "--context-file"), ("export", ".", "--out", ".", "--notes")]
)
def test_files_of_texts_are_utf_8(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "notes").write_bytes(b"a \xff")
    problem = "not UTF-8 (invalid start byte at byte 2)"
    assert run(*command, tmp_path / "notes").error == f"{tmp_path / 'notes'}: {problem}"
    assert run(*command, "-", stdin=b"a \xff").error == f"standard input: {problem}"
    marked = b"\xef\xbb\xbfa \xff"  # the byte order mark counts
    assert run(*command, "-", stdin=marked).error == "standard input: not UTF-8 (invalid start byte at byte 5)"


def test_the_help_of_a_group_has_whole_sentences(run: Run) -> None:
    for name in ("train", "evaluate", "checkpoint", "bench"):
        lines = run(name, "--help").success.splitlines()
        assert not [line for line in lines[1:] if line.endswith("...")]
        assert max(map(len, lines)) <= 80


def test_closed_standard_output_and_other_encodings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"encoder": [[[[1.0]]]], "source_tokens": [{"text": "␣"}]}
    monkeypatch.setattr("triptych_cli.encoders.attend._ask", lambda *_: None)
    monkeypatch.setattr("triptych_cli.encoders.attend._json", lambda _: data)
    output = io.TextIOWrapper(io.BytesIO(), "latin-1")
    monkeypatch.setattr(sys, "stdout", output)
    assert run("attend", "a").code == 0
    assert output.buffer.getvalue().decode() == "␣  ␣ 1.00\n"
    assert output.errors == "backslashreplace"  # of names of files
    monkeypatch.setattr(sys, "stdout", None)
    for command in (
        "models",
        "models --json",
        "attend a",
        "attend a --json",
        "bench compare a b",
        "bench fill",
        "bench fill --quiet --csv -",
        "checkpoint score a b",
        "evaluate image-classification a",
        "infer --input a=b",
        "keys list --api-keys a",
    ):
        assert run(*command.split()).error == "standard output is closed; redirect it to a file, or to /dev/null"


@pytest.mark.parametrize(("unbuffered", "most"), [("", 0), ("1", 9)])
def test_a_text_that_is_not_written_as_a_whole_is_an_error(tmp_path: Path, unbuffered: str, most: int) -> None:
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({most}, {most}))"
    program = f"{limit}; from triptych_cli.main import main; main()"
    command, environment = [sys.executable, "-c", program, "--version"], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open(tmp_path / "version.txt", "wb") as output:
        result = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "Error: standard output: File too large\n")


@pytest.mark.parametrize("failure", [click.Abort, KeyboardInterrupt])
def test_ctrl_c_prints_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]) -> None:
    def interrupt(context: click.Context) -> None:
        raise failure

    monkeypatch.setattr(cli, "invoke", interrupt)
    result = run("models")
    assert (result.code, result.err.strip()) == (130, "Error: interrupted")


def test_a_second_ctrl_c_prints_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "invoke", interrupt)
    monkeypatch.setattr(click.core, "echo", interrupt)  # while click notes the first one
    result = run("models")
    assert (result.code, result.err.strip()) == (130, "Error: interrupted")


def test_a_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['onnxruntime'] = None; from triptych_cli.main import main; main()"
    result = subprocess.run([sys.executable, "-c", program, "translate", "a"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == f"Error: onnxruntime is not installed; run: {install_command('serve')}\n"


def test_help_imports_no_heavy_package() -> None:
    program = (
        "import sys; from triptych_cli.main import cli\n"
        "for name in ('', 'fill', 'classify', 'translate-docs'):\n"
        "    cli.main([*name.split(), '--help'], standalone_mode=False)\n"
        "print({'onnxruntime', 'numpy', 'grpc'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.count("Usage: ") == 4
    assert result.stdout.splitlines()[-1] == "set()"
