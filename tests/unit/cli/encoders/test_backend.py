"""Every encoder task with an engine in this process, and the methods of the client for it."""

from pathlib import Path

import pytest

from triptych_cli.encoders import backend
from triptych_client import Client

from ....fixtures.toy import HERE
from ..conftest import Run

TASKS = [value for value in vars(backend).values() if isinstance(value, backend.EncoderTask)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.capability)
def test_the_client_has_the_method_of_each_task(task: backend.EncoderTask) -> None:
    assert callable(getattr(Client, task.client_method))


@pytest.mark.parametrize(("command", "arguments"), [("fill", ["[MASK]"]), ("embed", ["a"])])
def test_an_engine_in_this_process(run: Run, command: str, arguments: list[str]) -> None:
    assert run(command, "--models", HERE / "encoder_models", *arguments).success


def test_a_missing_repository_is_one_line(run: Run, tmp_path: Path) -> None:
    assert run("fill", "--models", tmp_path / "none", "[MASK]").error == f"{tmp_path / 'none'}: no such model repository"
