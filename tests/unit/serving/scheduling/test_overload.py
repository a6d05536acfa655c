"""Engines that are asked five times as much as they can do, in the time of the test."""

from functools import cache

import pytest

from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.decode_scheduler import DecodeLimits

from ..simulation import BatchSimulation, DecodeSimulation, Outcome, Traffic

FACTOR = 5
SECONDS = 40.0
FLOOD_ROWS = 500.0  # a second


@cache
def decode_capacity(rows: tuple[int, ...] = (1,)) -> float:
    """Rows a second with a long queue."""
    outcome = DecodeSimulation().run(Traffic(FLOOD_ROWS * len(rows) / sum(rows), 1.0, None, rows))
    return outcome.rows / outcome.end


@cache
def batch_capacity() -> float:
    outcome = BatchSimulation().run(Traffic(FLOOD_ROWS, 1.0, None))
    return outcome.rows / outcome.end


def traffic(capacity: float, factor: float, deadline: float | None, rows: tuple[int, ...] = (1,)) -> Traffic:
    return Traffic(factor * capacity * len(rows) / sum(rows), SECONDS, deadline, rows)


def check(outcome: Outcome, capacity: float, deadline: float) -> None:
    """Most of the capacity is answers in time, and soon after the last call all is over."""
    assert outcome.rows / SECONDS > 0.85 * capacity, outcome.calls
    assert outcome.calls["OverloadedError"] > len(outcome.latencies) / 2
    assert sorted(outcome.latencies)[int(len(outcome.latencies) * 0.98)] < 1.1 * deadline
    assert outcome.end < SECONDS + 1.5 * deadline


@pytest.mark.parametrize("rows", [(1,), (1, 2, 3, 4, 5), (12,)], ids=str)
@pytest.mark.parametrize("deadline", [1.5, 4.0])
def test_a_decode_engine_answers_in_time_what_it_can(rows: tuple[int, ...], deadline: float) -> None:
    capacity = decode_capacity(rows)
    check(DecodeSimulation().run(traffic(capacity, FACTOR, deadline, rows)), capacity, deadline)


@pytest.mark.parametrize("rows", [(1,), (8,), (1, 4, 12)], ids=str)
@pytest.mark.parametrize("deadline", [1.0, 4.0])
def test_a_one_shot_engine_answers_in_time_what_it_can(rows: tuple[int, ...], deadline: float) -> None:
    capacity = batch_capacity()
    outcome = BatchSimulation().run(traffic(capacity, FACTOR, deadline, rows))
    check(outcome, capacity, deadline)


def test_full_slots_would_be_too_slow_for_the_deadline() -> None:
    """All slots taken, every row takes a second: who is let in then misses the deadline, and answers dwindle to none."""
    capacity = decode_capacity()
    crowded = DecodeSimulation().run(traffic(capacity, FACTOR, 0.9), DecodeLimits(refuses_late=False))
    outcome = DecodeSimulation().run(traffic(capacity, FACTOR, 0.9))
    assert crowded.rows < 0.3 * capacity * SECONDS
    assert outcome.rows > 0.6 * capacity * SECONDS


def test_an_engine_that_keeps_up_refuses_nobody() -> None:
    for outcome in (
        DecodeSimulation().run(traffic(decode_capacity(), 0.6, 2.0)),
        DecodeSimulation().run(traffic(decode_capacity((1, 2, 3)), 0.6, 3.0, (1, 2, 3))),
        BatchSimulation().run(traffic(batch_capacity(), 0.8, 2.0)),
    ):
        assert set(outcome.calls) <= {"answered", "left"}, outcome.calls
        assert outcome.calls["left"] == 0


def test_without_deadlines_a_limit_of_the_wait_keeps_the_queue_short() -> None:
    decoded = DecodeSimulation().run(traffic(decode_capacity(), FACTOR, None), DecodeLimits(waiting_seconds=1.0))
    computed = BatchSimulation().run(traffic(batch_capacity(), FACTOR, None), BatchLimits(waiting_seconds=1.0))
    for outcome in (decoded, computed):
        assert outcome.calls["OverloadedError"] > outcome.calls["answered"]
        assert outcome.end < SECONDS + 5
