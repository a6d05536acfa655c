"""`triptych generate` and the commands that write pictures: their arguments."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from triptych_client import Client, FieldViolation, InvalidArgumentError
from triptych_serving.models.generation.chat import ChatTemplate

from ...fixtures.toy import TEXT_GENERATION_MODELS
from .conftest import Run


def test_a_dash_and_no_text_read_a_pipe(run: Run) -> None:
    typed, *piped = (
        run("generate", *arguments, "--max-tokens", "4", "--seed", "1", stdin=b"Once upon a time\n")
        for arguments in (["Once upon a time"], ["-"], [])
    )
    assert typed.success.strip()
    assert [each.success for each in piped] == [typed.success] * 2


def test_each_line_of_a_piped_chat_gets_one_line_of_json(run: Run) -> None:
    chat = ("generate", "--models", TEXT_GENERATION_MODELS, "--model", "llama", "--chat", "--json", "--max-tokens", "2")
    lines = run(*chat, stdin=b"one\ntwo\n").success.splitlines()
    assert [len(json.loads(line)["choices"]) for line in lines] == [1, 1]
    assert run(*chat, stdin=b"one\n\xff\n").err.startswith("Error: standard input:2: not UTF-8")


def test_variables_of_a_template(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    render = ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", lambda self, *arguments: given.append(arguments[1]) or render(self, *arguments))
    chat = ("generate", "--models", TEXT_GENERATION_MODELS, "--model", "llama", "--chat", "--max-tokens", "1", "Hi")
    assert run(*chat, *(f"--template-variable={each}" for each in ("a=false", "b=2", "c=[1]", "d=x=y", "e="))).success
    assert given == [{"a": False, "b": 2, "c": "[1]", "d": "x=y", "e": ""}]
    assert "'a' is not a name, = and a value" in run(*chat, "--template-variable", "a").err
    assert "--template-variable is for --chat" in run("generate", "--template-variable", "a=1", "Hi").err


def test_texts_follow_rules(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 3}')
    written = run("generate", "Once", "--json-schema", tmp_path / "schema.json").success
    assert len(json.loads(written)) == 3
    assert run("generate", "Once", "--regex", "x{3}").success == "xxx\n"
    (tmp_path / "schema.json").write_text(" \n")
    assert "the file is empty" in run("generate", "Once", "--json-schema", tmp_path / "schema.json").err
    assert "the name of the file is empty" in run("generate", "Once", "--json-schema", "").err
    assert run("generate", "Once", "--regex", "(").err == "Error: regex: unclosed group; correct or simplify it\n"


def test_a_pipe_is_utf_8_whatever_the_locale(run: Run) -> None:
    assert run("generate", "--echo", "--max-tokens", "1", stdin="Zoë".encode()).success.startswith("Zoë")
    assert run("generate", stdin=b"\xff").error == "standard input: not UTF-8 (invalid start byte at byte 0)"


def test_a_terminal_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.common.lines.sys", Mock(stdin=Mock(isatty=lambda: True), stdout=sys.stdout))
    assert "nothing to read: give TEXT or a pipe" in run("generate").err


PICTURES = [
    ("complete-image", "half.png", "-o"),
    ("generate-image", "-o"),
    ("reconstruct-image", "a.png", "-o"),
    ("interpolate-images", "a.png", "b.png", "-o"),
    ("attend", "Hello", "--png"),
]


@pytest.mark.parametrize("arguments", PICTURES)
def test_pictures_have_names_that_end_with_png(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "whole.jpg"
    result = run(*arguments, path)
    assert result.code == 2
    assert f"{path}: pictures are written as PNG; choose a name that ends with .png" in " ".join(result.err.split())
    assert not path.exists()


@pytest.mark.parametrize("arguments", [*PICTURES, ("attend", "Hello", "--html")])
def test_folders_that_do_not_exist_are_noticed_before_the_work(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "missing/out.png"
    assert f"{path}: cannot be written: No such file or directory" in run(*arguments, path, "--models", tmp_path).err


def test_a_rejected_picture_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    violations = (FieldViolation("images[1]", "it is not an image"),)
    rejected = InvalidArgumentError("bad", code="INVALID_ARGUMENT", violations=violations)
    monkeypatch.setattr(Client, "interpolate", Mock(side_effect=rejected))
    first, last = (tmp_path / name for name in ("first.png", "last.png"))
    for file in (first, last):
        file.write_bytes(b"x")
    command = ("interpolate-images", first, last, "-o", tmp_path / "out.png", "--server", "localhost:1")
    assert run(*command).error == f"{last}: it is not an image"


def test_help_says_that_models_sample_by_default(run: Run) -> None:
    for command in (("generate",), ("complete-image",), ("bench", "generate")):
        text = "".join(run(*command, "--help").success.split())  # wraps at hyphens
        assert "[default:themodel's,1with--sampling-topk,--sampling-toppor--sampling-minp]" in text
        assert "nosampling" not in text
    assert "[default:nosampling]" in "".join(run("translate", "--help").success.split())
