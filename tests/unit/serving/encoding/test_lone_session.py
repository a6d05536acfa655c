"""Which runs have more threads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from triptych_serving.encoding.lone_session import SHARED_RUNS, LoneSession
from triptych_serving.errors import EngineError
from triptych_serving.runtime.session import Session

from ....fixtures.onnx_models import onnx_model, values

LONE, SHARED = 2, 1


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    same = onnx_model([helper.make_node("Identity", ["x"], ["y"])], values({"x": ["N"]}), values({"y": ["N"]}))
    onnx.save(same, tmp_path / "same.onnx")
    return tmp_path / "same.onnx"


@pytest.fixture
def run(graph: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Run and return the threads of all runs; what is given happens during the run."""
    session, threads = LoneSession(graph, SHARED, LONE, saturation_free=True), list[int]()
    events: list[Callable[[], Any]] = []

    def note(self: Session, inputs: Any, outputs: Sequence[str] | None = None, stop: Any = None) -> list[Any]:
        threads.append(SHARED if self is session else LONE)
        if events:
            events.pop()()
        return []

    def start(*during: Callable[[], Any]) -> list[int]:
        events.extend(during)
        session.run({})
        return threads

    monkeypatch.setattr(Session, "run", note)
    return start


def fail() -> None:
    raise EngineError("broken")


def test_runs_beside_others_and_those_after_them_share_the_cpus(run: Callable[..., list[int]]) -> None:
    assert run() == [LONE]
    assert run(run) == [LONE, LONE, SHARED]
    for _ in range(SHARED_RUNS):
        run()
    assert run()[3:] == [SHARED] * (SHARED_RUNS - 1) + [LONE] * 2


def test_a_failed_run_is_over(run: Callable[..., list[int]]) -> None:
    with pytest.raises(EngineError):
        run(fail)
    assert run() == [LONE, LONE]


@pytest.mark.parametrize(("lone", "threads"), [(4, "1 (4 alone)"), (1, "1"), (0, "1")])
def test_the_results_are_those_of_the_graph(graph: Path, lone: int, threads: str) -> None:
    session, given = LoneSession(graph, 1, lone, saturation_free=True), np.arange(3, dtype=np.float32)
    assert session.threads == threads
    np.testing.assert_array_equal(session.run({"x": given})[0], given)
