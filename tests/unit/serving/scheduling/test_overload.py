"""Engines at three times their capacity, in simulated time."""

from functools import cache

import pytest

from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.decode_scheduler import DecodeLimits

from ..simulation import BatchSimulation, DecodeSimulation, Simulation, Traffic

FACTOR = 3
SECONDS = 30.0
FLOOD_ROWS = 300.0  # a second


@cache
def capacity_of(kind: type[Simulation], rows: tuple[int, ...] = (1,)) -> float:
    """Return the rows a second with a long queue."""
    flooded = kind().run(Traffic(FLOOD_ROWS * len(rows) / sum(rows), 1.0, None, rows))
    return flooded.done / flooded.now


def traffic(capacity: float, factor: float, deadline: float | None, rows: tuple[int, ...] = (1,)) -> Traffic:
    return Traffic(factor * capacity * len(rows) / sum(rows), SECONDS, deadline, rows)


def check_overload(outcome: Simulation, capacity: float, deadline: float) -> None:
    """Check that most of the capacity is results in time, and that all is over soon after the last call."""
    assert outcome.done / SECONDS > 0.85 * capacity, outcome.calls
    assert outcome.calls["OverloadedError"] > len(outcome.latencies) / 2
    assert sorted(outcome.latencies)[int(len(outcome.latencies) * 0.98)] < 1.1 * deadline
    assert outcome.now < SECONDS + 1.5 * deadline


@pytest.mark.parametrize(("rows", "deadline"), [((1,), 1.5), ((1, 2, 3, 4, 5), 4.0), ((12,), 4.0), ((8, 32), 6.0)])
def test_an_overloaded_decode_engine_keeps_its_goodput(rows: tuple[int, ...], deadline: float) -> None:
    capacity = capacity_of(DecodeSimulation, rows)
    check_overload(DecodeSimulation().run(traffic(capacity, FACTOR, deadline, rows)), capacity, deadline)


@pytest.mark.parametrize(("rows", "deadline"), [((1,), 1.0), ((8,), 4.0), ((1, 4, 12), 1.0)])
def test_an_overloaded_one_shot_engine_keeps_its_goodput(rows: tuple[int, ...], deadline: float) -> None:
    capacity = capacity_of(BatchSimulation)
    check_overload(BatchSimulation().run(traffic(capacity, FACTOR, deadline, rows)), capacity, deadline)


def test_forecasts_keep_goodput_when_full_slots_are_too_slow_for_the_deadline() -> None:
    """Every row takes a second with all slots taken: without forecasts all calls miss a deadline of 0.9 s."""
    capacity = capacity_of(DecodeSimulation)
    crowded = DecodeSimulation().run(traffic(capacity, FACTOR, 0.9), DecodeLimits(refuses_late=False))
    outcome = DecodeSimulation().run(traffic(capacity, FACTOR, 0.9))
    assert crowded.done < 0.3 * capacity * SECONDS
    assert outcome.done > 0.6 * capacity * SECONDS


def test_an_engine_that_keeps_up_rejects_no_call() -> None:
    for outcome in (
        DecodeSimulation().run(traffic(capacity_of(DecodeSimulation), 0.6, 2.0)),
        DecodeSimulation().run(traffic(capacity_of(DecodeSimulation, (1, 2, 3)), 0.6, 3.0, (1, 2, 3))),
        BatchSimulation().run(traffic(capacity_of(BatchSimulation), 0.8, 2.0)),
    ):
        assert set(outcome.calls) <= {"answered", "left"}, outcome.calls
        assert outcome.calls["left"] == 0


def test_a_limit_of_the_wait_keeps_the_queue_short_without_deadlines() -> None:
    decoded = DecodeSimulation().run(traffic(capacity_of(DecodeSimulation), FACTOR, None), DecodeLimits(waiting_seconds=1.0))
    computed = BatchSimulation().run(traffic(capacity_of(BatchSimulation), FACTOR, None), BatchLimits(waiting_seconds=1.0))
    for outcome in (decoded, computed):
        assert outcome.calls["OverloadedError"] > outcome.calls["answered"]
        assert outcome.now < SECONDS + 5
