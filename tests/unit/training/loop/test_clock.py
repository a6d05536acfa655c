"""Time limits, with a fake clock."""

import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from lightning_fabric import Fabric

from triptych import signals
from triptych_training.loop import recipe as recipe_module
from triptych_training.loop.clock import AGREE_STEPS, Clock
from triptych_training.loop.recipe import Recipe


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock."""
    watch = SimpleNamespace(now=1000.0)
    clocks = SimpleNamespace(monotonic=lambda: watch.now, process_time=lambda: watch.now / 2)
    monkeypatch.setattr(recipe_module, "time", clocks)
    return watch


def make(max_minutes: float = 0.0, pause_minutes: float = 0.0, processes: int = 1, cpu_time: bool = False) -> Clock:
    fabric = SimpleNamespace(world_size=processes, device=torch.device("cpu"))
    recipe = Recipe(train=(), max_minutes=max_minutes, pause_minutes=pause_minutes, schedule="linear", cpu_time=cpu_time)
    return Clock(cast(Fabric, fabric), recipe, opened=recipe.now())


def test_max_minutes_counts_all_runs(watch: SimpleNamespace) -> None:
    clock = make(max_minutes=10)
    clock.before = 140.0
    watch.now += 100  # reading the data
    clock.update(0)
    assert (clock.gone, clock.left) == (240 / 540, 360.0)  # a tenth is kept for the validation
    clock.validation = 100.0
    watch.now += 110
    clock.update(1)
    assert (clock.gone, clock.over) == (0.7, False)
    watch.now += 1000
    clock.update(2)
    assert (clock.gone, clock.over, clock.left) == (1.0, True, 0.0)


def test_cpu_time_counts_instead_of_the_clock(watch: SimpleNamespace) -> None:
    clock = make(max_minutes=10, cpu_time=True)
    watch.now += 200
    clock.update(0)
    assert (clock.gone, clock.left) == (100 / 540, 500.0)


def test_the_first_process_clock_counts(watch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def broadcast(tensor: torch.Tensor, source: int) -> None:
        sent.append((tensor.tolist(), source))
        tensor.copy_(torch.tensor([0.25, 1.0]))

    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    clock = make(max_minutes=1, processes=2)
    watch.now += 27
    for step in range(AGREE_STEPS + 1):
        clock.update(step)
    assert sent == [([0.5, 0.0], 0)] * 2
    assert (clock.gone, clock.pauses) == (0.25, True)


def test_a_second_signal_has_its_usual_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    times, raised, clock = iter([7.0, 7.1, 7.6]), list[int](), make()
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: next(times)))
    before = signal.signal(signal.SIGTERM, lambda number, _: raised.append(number))
    try:
        with clock.signals():
            for expected in ([], [], [signal.SIGTERM]):
                signal.raise_signal(signal.SIGTERM)
                assert (clock.signal, raised) == (signal.SIGTERM, expected)
    finally:
        signal.signal(signal.SIGTERM, before)
