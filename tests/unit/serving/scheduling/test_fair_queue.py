"""Whose row is next."""

from collections.abc import Sequence

import pytest

from triptych_serving.scheduling.fair_queue import PATIENCE_SECONDS, FairQueue
from triptych_serving.scheduling.request import Call, Row

from ..calls import RecordedCall, make_call


def turns_of(*calls: RecordedCall) -> FairQueue:
    turns = FairQueue()
    for call in calls:
        add(turns, call)
    return turns


def add(turns: FairQueue, call: RecordedCall, now: float = 0.0) -> RecordedCall:
    call.arrived = now
    turns.add(call, call.rows)
    return call


def take(turns: FairQueue, count: int) -> Sequence[Call[Row]]:
    return [turns.take()[0] for _ in range(count)]


def test_a_stream_of_single_calls_does_not_hold_up_the_second_row_of_another() -> None:
    turns, call = FairQueue(), make_call(rows=2, deadline=100.0)
    add(turns, call)
    for index in range(10):
        add(turns, make_call(deadline=101.0 + index), float(index))
    served: list[Call[Row]] = []
    for index in range(10, 40):
        served += take(turns, 1)
        add(turns, make_call(deadline=101.0 + index), float(index))
    assert served.count(call) == 2


def test_a_call_without_a_deadline_is_not_passed_for_ever() -> None:
    turns, patient = turns_of(make_call(rows=9)), make_call()
    add(turns, patient)
    served: list[Call[Row]] = []
    while patient not in served:
        now = float(len(served))
        add(turns, make_call(deadline=now + 2), now)
        add(turns, make_call(deadline=now + 2), now)
        served += take(turns, 1)
        assert now <= 2 * PATIENCE_SECONDS


def test_the_more_urgent_call_still_goes_first() -> None:
    patient = [make_call() for _ in range(50)]
    turns, urgent = turns_of(*patient), make_call(deadline=2.0)
    take(turns, 3)
    add(turns, urgent, 1.0)
    assert take(turns, 1) == [urgent]


@pytest.mark.parametrize(
    ("waiting", "rows", "deadline", "tokens"),
    [
        ([], 1, None, 0),
        ([make_call(deadline=5.0) for _ in range(10)], 1, 9.0, 30),
        ([make_call(deadline=5.0) for _ in range(10)], 1, 1.0, 0),
        ([make_call() for _ in range(10)], 1, None, 30),
        ([make_call(rows=2_000)], 1, None, 3),
        ([make_call(rows=2_000)], 2, None, 6),
        ([make_call(rows=2_000)], 1, 9.0, 0),
        ([make_call()], 500, None, 3),
        ([make_call(rows=12) for _ in range(5)], 12, None, 180),
    ],
    ids=[
        "nobody",
        "urgent",
        "less urgent",
        "all alike",
        "bulk",
        "two turns",
        "urgent before bulk",
        "a bulk comes",
        "bulk before bulk",
    ],
)
def test_what_is_ahead(waiting: list[RecordedCall], rows: int, deadline: float | None, tokens: float) -> None:
    assert turns_of(*waiting).ahead(rows, deadline, 0.0) == tokens


def test_what_has_gone_is_not_ahead() -> None:
    calls = [make_call(deadline=5.0) for _ in range(4)]
    turns = turns_of(*calls)
    calls[2].fail(ValueError())  # type: ignore[arg-type]
    assert [call for call, _ in turns.remove_over()] == [calls[2]]
    assert turns.ahead(1, 9.0, 0.0) == 9
    take(turns, 3)
    assert (turns.ahead(1, 9.0, 0.0), turns.rows, turns.tokens) == (0, 0, 0)
