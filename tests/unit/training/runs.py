"""Helpers: contents of a run folder, killed trainings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych_training.loop.trainer import Trainer


class Killed(BaseException):
    """Interruption that no handler catches, like a signal."""


def records(run: Path) -> list[dict[str, Any]]:
    """Read the lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def files(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def same_but_for_time(run: Path) -> list[dict[str, Any]]:
    """Read the lines without times and smoothed figures, which start again with every process."""
    changing = {"seconds", "loss", "train_loss"}
    return [{k: v for k, v in r.items() if k not in changing and not k.endswith("_per_second")} for r in records(run)]


def kill(train: Callable[[], Any], method: str, call: int) -> None:
    """Run `train` and kill it at the `call`th call of the trainer's `method`."""
    original, calls = getattr(Trainer, method), iter(range(1, 1_000))

    def deadly(self: Trainer, *arguments: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, method, deadly)
        with pytest.raises(Killed):
            train()


def assert_same(run: Path, whole: Path) -> None:
    """Check that both runs have the same files, metrics and, bit for bit, weights."""
    assert files(run) == files(whole)
    for path in whole.rglob("*.safetensors"):
        name = path.relative_to(whole)
        assert (run / name).read_bytes() == path.read_bytes(), name
    assert same_but_for_time(run) == same_but_for_time(whole)


def assert_resumed(train: Callable[..., Any], run: Path, whole: Path, method: str, call: int) -> None:
    """Check that a training, killed as `kill` does and resumed in the folder `run`, ends as the uninterrupted one did."""
    kill(lambda: train(run), method, call)
    train(run, resume=True)
    assert_same(run, whole)
