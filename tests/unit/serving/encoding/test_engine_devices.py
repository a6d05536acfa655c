"""The one-shot engine over devices: batches that overlap, and memory that is given back."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

from ..calls import eventually, item_call
from ..stub_lane import Gate
from ..stub_runner import INDIGESTIBLE, POISON, UNREADABLE, StubRunner

LIMITS = BatchLimits(batch_rows=4, saturating_tokens=20)


class HoldingStub(StubRunner):
    """Counts batches that were prepared and not given back."""

    def __init__(self, gate: Gate | None = None) -> None:
        super().__init__(gate)
        self.held = 0
        self.most_held = 0
        self._holding = threading.Lock()

    def prepare(self, items: Sequence[Item]) -> list[Any]:
        batch = super().prepare(items)
        with self._holding:
            self.held += 1
            self.most_held = max(self.most_held, self.held)
        return batch

    def release(self, batch: list[Any]) -> None:
        with self._holding:
            self.held -= 1


@contextmanager
def overlapping(runs: int = 1, overlap: int = 2) -> Iterator[tuple[OneShotEngine, HoldingStub, Gate]]:
    """An engine whose runs end when the gate lets them."""
    gate = Gate()
    runner = HoldingStub(gate)
    engine = OneShotEngine(runner, OneShotOptions(runs, LIMITS, overlap))
    engine.start()
    try:
        yield engine, runner, gate
    finally:
        gate.open()
        engine.close(drain=False)
        assert runner.held == 0


@pytest.mark.parametrize(("runs", "overlap"), [(1, 1), (1, 2), (2, 2), (2, 3)])
def test_so_many_batches_are_on_their_way(runs: int, overlap: int) -> None:
    calls = [item_call(*[5] * 4, payload="x") for _ in range(20)]
    with overlapping(runs, overlap) as (engine, runner, gate):
        for call in calls:
            engine.submit(call)
        eventually(lambda: runner.prepared == runs * overlap + 1)
        assert runner.running == runs * overlap
        gate.open()
        for call in calls:
            call.wait()
    assert runner.most_running == runs * overlap
    assert runner.most_held <= runs * overlap + 1


def test_a_small_batch_is_not_sent_behind_another() -> None:
    first, *others = (item_call(5, payload=letter) for letter in "abcd")
    with overlapping() as (engine, runner, gate):
        engine.submit(first)
        eventually(lambda: runner.running == 1)
        for call in others:
            engine.submit(call)
        assert engine.load() == (1, 3)
        gate.allow()
        eventually(lambda: runner.running == 1 and len(runner.batches) == 2)
        gate.open()
        for call in others:
            call.wait()
    assert runner.batches == [["a"], ["b", "c", "d"]]


def test_a_batch_that_is_worth_it_is_sent_behind_another() -> None:
    first, large = item_call(5, payload="a"), item_call(*[5] * 4, payload="b")
    with overlapping() as (engine, runner, gate):
        engine.submit(first)
        eventually(lambda: runner.running == 1)
        engine.submit(large)
        eventually(lambda: runner.running == 2)
        gate.open()
        large.wait()


@pytest.mark.parametrize("poison", [INDIGESTIBLE, POISON, UNREADABLE, "cancelled"])
def test_memory_is_given_back_whatever_happens(poison: str) -> None:
    with overlapping() as (engine, runner, gate):
        calls = [item_call(*[5] * 4, payload=payload) for payload in ("a", poison, "b", "c")]
        for call in calls:
            engine.submit(call)
        eventually(lambda: runner.running == 2)
        if poison == "cancelled":
            for call in calls:
                engine.cancel(call)
        gate.open()
        for call in calls:
            call.wait()
        eventually(lambda: engine.load() == (0, 0))
        eventually(lambda: runner.held == 0)


def test_nothing_would_ever_run() -> None:
    with pytest.raises(ValueError, match="overlap is 0, it must be at least 1"):
        OneShotOptions(overlap=0)
