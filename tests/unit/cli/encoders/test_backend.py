"""Encoder commands with an engine in this process."""

from pathlib import Path

import pytest

from ....fixtures.toy import HERE
from ..conftest import Run


@pytest.mark.parametrize(("command", "arguments"), [("fill", ["[MASK]"]), ("embed", ["a"])])
def test_an_engine_in_this_process(run: Run, command: str, arguments: list[str]) -> None:
    assert run(command, "--models", HERE / "encoder_models", *arguments).success


def test_a_missing_repository_is_one_line(run: Run, tmp_path: Path) -> None:
    assert run("fill", "--models", tmp_path / "none", "[MASK]").error == f"{tmp_path / 'none'}: no such model repository"
