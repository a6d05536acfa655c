"""What all verbs have in common."""

import subprocess
import sys

import click
import pytest

from triptych_cli.main import COMMANDS, cli
from triptych_client import __version__

from .conftest import Run


def test_version(run: Run) -> None:
    assert run("--version").out == f"triptych, version {__version__}\n"


def test_help_lists_every_verb_without_importing_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {f"triptych_cli.{entry.module}" for entry in COMMANDS.values()}
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)
    result = run("--help")
    assert result.code == 0
    assert all(f"{name}  " in result.out for name in COMMANDS)
    assert not modules & set(sys.modules)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_help(run: Run, verb: str) -> None:
    result = run(verb, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: triptych {verb} ")


def test_no_verb_shows_the_help(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert result.err.startswith("Usage: triptych ")


def test_an_unknown_verb_is_refused_in_one_line(run: Run) -> None:
    result = run("sing")
    assert result.code == 2
    assert result.error == "No such command 'sing' (see triptych --help)"


def test_serve_shows_variables_and_defaults(run: Run) -> None:
    text = " ".join(run("serve", "--help").out.split())
    assert "[env var: TRIPTYCH_PORT; default: 8001;" in text
    assert "[env var: TRIPTYCH_HOST; default: 0.0.0.0]" in text
    assert "[env var: TRIPTYCH_MODELS]" in text


def options_of(verb: str) -> list[click.Option]:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def test_every_option_of_serve_is_a_variable_too() -> None:
    for option in options_of("serve"):
        assert option.name is not None
        assert option.envvar == f"TRIPTYCH_{option.name.upper()}"
        assert option.show_envvar
        assert option.help


def test_a_variable_means_the_same_to_every_verb() -> None:
    options = [
        option
        for verb in ("translate", "fill", "classify", "embed", "serve", "models", "evaluate")
        for option in options_of(verb)
    ]
    names = {(option.envvar, option.name) for option in options if option.envvar}
    assert len({variable for variable, _ in names}) == len(names)


def test_a_bad_variable_is_refused_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_PORT", "many")
    result = run("serve")
    assert result.code == 2
    assert "TRIPTYCH_PORT" in result.error


@pytest.mark.parametrize("failure", [click.Abort, KeyboardInterrupt])
def test_ctrl_c_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]) -> None:
    def interrupt(context: click.Context) -> None:
        raise failure

    monkeypatch.setattr(cli, "invoke", interrupt)
    result = run("models")
    assert result.code == 130
    assert result.err.strip() == "Error: interrupted"


def test_a_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['onnxruntime'] = None; from triptych_cli.main import main; main()"
    result = subprocess.run([sys.executable, "-c", program, "translate", "a"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == 'Error: onnxruntime is not installed; run: pip install "triptych[serve]"\n'


@pytest.mark.parametrize("arguments", [["--help"], ["fill", "--help"], ["classify", "--help"], ["embed", "--help"]])
def test_help_loads_no_runtime(arguments: list[str]) -> None:
    program = (
        "import sys, atexit; atexit.register(lambda: print('onnxruntime' in sys.modules or 'numpy' in sys.modules));"
        "from triptych_cli.main import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"
