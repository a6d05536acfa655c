"""Order in which calls get their rows served."""

from collections.abc import Sequence

import pytest

from triptych_serving.scheduling.fair_queue import PATIENCE_SECONDS, FairQueue
from triptych_serving.scheduling.request import Call, Row

from ..calls import RecordedCall, make_call


def queue_of(*calls: RecordedCall) -> FairQueue[Row]:
    queue: FairQueue[Row] = FairQueue(lambda _: 1)
    for call in calls:
        add(queue, call)
    return queue


def add(queue: FairQueue[Row], call: RecordedCall, now: float = 0.0) -> RecordedCall:
    call.arrived = now
    queue.add(call, call.rows)
    return call


def take(queue: FairQueue[Row], count: int) -> Sequence[Call[Row]]:
    taken = []
    for _ in range(count):
        row = queue.peek()
        assert row is not None
        queue.advance(row)
        queue.remove(row)
        taken.append(row.call)
    return taken


def test_a_stream_of_single_calls_does_not_hold_up_the_second_row_of_another() -> None:
    call = make_call(rows=2, deadline=100.0)
    queue = queue_of(call)
    for index in range(10):
        add(queue, make_call(deadline=101.0 + index), float(index))
    served: list[Call[Row]] = []
    for index in range(10, 40):
        served += take(queue, 1)
        add(queue, make_call(deadline=101.0 + index), float(index))
    assert served.count(call) == 2


def test_a_call_without_a_deadline_is_served_in_the_end() -> None:
    patient = make_call()
    queue = queue_of(make_call(rows=9), patient)
    served: list[Call[Row]] = []
    while patient not in served:
        now = float(len(served))
        for _ in range(2):
            add(queue, make_call(deadline=now + 2), now)
        served += take(queue, 1)
        assert now <= 2 * PATIENCE_SECONDS


def test_a_more_urgent_call_joins_the_current_round() -> None:
    queue, urgent = queue_of(*(make_call() for _ in range(50))), make_call(deadline=2.0)
    take(queue, 3)
    add(queue, urgent, 1.0)
    assert take(queue, 1) == [urgent]


@pytest.mark.parametrize(
    ("waiting", "rows", "deadline", "ahead"),
    [
        pytest.param([], 1, None, 0, id="empty"),
        pytest.param([make_call(deadline=5.0) for _ in range(10)], 1, 9.0, 10, id="urgent"),
        pytest.param([make_call(deadline=5.0) for _ in range(10)], 1, 1.0, 0, id="less urgent"),
        pytest.param([make_call() for _ in range(10)], 1, None, 10, id="all alike"),
        pytest.param([make_call(rows=2_000)], 1, None, 1, id="bulk"),
        pytest.param([make_call(rows=2_000)], 2, None, 2, id="two rounds"),
        pytest.param([make_call(rows=2_000)], 1, 9.0, 0, id="urgent before bulk"),
        pytest.param([make_call()], 500, None, 1, id="a bulk comes"),
        pytest.param([make_call(rows=12) for _ in range(5)], 12, None, 60, id="bulk before bulk"),
    ],
)
def test_rows_ahead_of_a_new_call(waiting: list[RecordedCall], rows: int, deadline: float | None, ahead: int) -> None:
    assert queue_of(*waiting).ahead(rows, 1, deadline, 0.0) == ahead


def test_dropped_and_served_calls_are_not_ahead() -> None:
    calls = [make_call(deadline=5.0) for _ in range(4)]
    queue = queue_of(*calls)
    assert queue.drop(calls[2]) == list(calls[2].rows)
    queue.compact()
    assert queue.ahead(1, 1, 9.0, 0.0) == 3
    assert take(queue, 3) == [calls[0], calls[1], calls[3]]
    assert (queue.peek(), queue.ahead(1, 1, 9.0, 0.0), queue.rows, queue.tokens, len(queue)) == (None, 0, 0, 0, 0)


def test_rows_taken_out_of_turn_are_skipped() -> None:
    first, second = make_call(rows=3), make_call(rows=2)
    queue = queue_of(first, second)
    for row in (first.rows[0], second.rows[1]):
        queue.remove(row)
    assert take(queue, 3) == [second, first, first]
    assert queue.peek() is None


def test_costly_rows_get_fewer_turns() -> None:
    queue: FairQueue[Row] = FairQueue(lambda row: row.size)
    short, long = make_call(rows=40, source=[7] * 5), make_call(rows=40, source=[7] * 20)
    for call in (long, short):
        add(queue, call)
    assert take(queue, 25).count(short) == 20


def test_rows_of_a_call_share_a_turn() -> None:
    queue: FairQueue[Row] = FairQueue(lambda row: row.size, turn=20)
    first, second, lone = make_call(rows=4, source=[7] * 10), make_call(rows=4, source=[7] * 10), make_call(source=[7] * 10)
    for call in (first, second, lone):
        add(queue, call)
    assert take(queue, 9) == [lone, first, first, second, second, first, first, second, second]


def test_rows_of_a_stream_have_turns_of_their_own() -> None:
    queue: FairQueue[Row] = FairQueue(lambda _: 1, turn=4)
    first, second = make_call(rows=4), make_call(rows=4)
    stream = RecordedCall([Row([7], 8), Row([7], 8)], streams=True)
    for call in (first, second, stream):
        add(queue, call)
    assert take(queue, 10) == [stream, stream, *[first] * 4, *[second] * 4]


def test_rows_below_the_unit_keep_their_order() -> None:
    queue: FairQueue[Row] = FairQueue(lambda row: row.size, unit=20)
    long, short, longest = (make_call(rows=2, source=[7] * size) for size in (20, 5, 21))
    for call in (longest, long, short):
        add(queue, call)
    assert take(queue, 6) == [long, short, longest, long, short, longest]
    assert queue.whole == 0


def test_a_late_call_does_not_get_the_rounds_that_it_missed() -> None:
    big, late = make_call(rows=100), make_call(rows=100)
    queue = queue_of(big)
    take(queue, 30)
    add(queue, late, 1.0)
    assert abs(take(queue, 20).count(late) - 10) <= 1
