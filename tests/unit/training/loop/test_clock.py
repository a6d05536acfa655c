"""A training's time, on a clock that is turned by hand."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from lightning_fabric import Fabric

from triptych_training.loop import clock as clock_module
from triptych_training.loop.clock import AGREE_STEPS, Clock, Limits


class Watch:
    """What `time.monotonic` says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Processes:
    """As much of Fabric as the clock asks for."""

    device = torch.device("cpu")

    def __init__(self, count: int) -> None:
        self.world_size = count


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=watch))
    return watch


def make(limits: Limits, processes: int = 1, opened: float = 1000.0) -> Clock:
    return Clock(cast(Fabric, Processes(processes)), limits, opened)


def test_without_limits_nothing_is_ever_over(watch: Watch) -> None:
    clock = make(Limits())
    clock.start(0.0)
    watch.now += 1e6
    clock.look(0)
    assert (clock.gone, clock.over, clock.pauses, clock.left) == (0.0, False, False, math.inf)
    assert clock.elapsed == 1e6


def test_a_training_s_time_counts_all_its_runs(watch: Watch) -> None:
    clock = make(Limits(max_minutes=10))
    watch.now += 100  # data are read
    clock.start(before=240.0)
    clock.look(0)
    assert (clock.gone, clock.left) == (0.4, 360.0)
    watch.now += 180
    clock.look(1)
    assert (clock.gone, clock.over) == (0.7, False)
    watch.now += 1000
    clock.look(2)
    assert (clock.gone, clock.over, clock.left) == (1.0, True, 0.0)


def test_a_pause_counts_from_the_run_s_very_beginning(watch: Watch) -> None:
    clock = make(Limits(pause_minutes=2))
    watch.now += 100
    clock.start(before=500.0)
    clock.look(0)
    assert not clock.pauses
    watch.now += 20
    clock.look(1)
    assert (clock.pauses, clock.over) == (True, False)


def test_of_several_processes_the_first_one_s_clock_counts(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def broadcast(tensor: torch.Tensor, source: int) -> None:
        told.append((tensor.tolist(), source))
        tensor.copy_(torch.tensor([0.25, 1.0]))

    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    clock = make(Limits(max_minutes=1), processes=2)
    clock.start(0.0)
    watch.now += 30
    for step in range(AGREE_STEPS + 1):
        clock.look(step)
    assert told == [([0.5, 0.0], 0)] * 2
    assert (clock.gone, clock.pauses) == (0.25, True)
