"""What a run folder holds, and a training that is killed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych_training.loop.trainer import Trainer


class Killed(BaseException):
    """As sudden as a signal."""


def records(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def files(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def same_but_for_time(run: Path) -> list[dict[str, Any]]:
    """The lines without times, and without what the meter smooths: it starts anew with every process."""
    changing = {"seconds", "loss", "train_loss"}
    return [{k: v for k, v in r.items() if k not in changing and not k.endswith("_per_second")} for r in records(run)]


def kill(train: Callable[[], Any], method: str, call: int) -> None:
    """Run `train`, which dies where the trainer's `method` is called for the `call`th time."""
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
    """Both runs ended with the same files, metrics and, bit for bit, weights."""
    assert files(run) == files(whole)
    for path in whole.rglob("*.safetensors"):
        name = path.relative_to(whole)
        assert (run / name).read_bytes() == path.read_bytes(), name
    assert same_but_for_time(run) == same_but_for_time(whole)
