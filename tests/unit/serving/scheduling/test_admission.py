"""Who is let into a queue, with the time as a plain number."""

import math

import pytest

from triptych_serving.errors import CancelledError, DeadlineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.scheduling.admission import (
    LONGEST_RETRY_SECONDS,
    RETRY_SECONDS,
    SHORTEST_RETRY_SECONDS,
    Admission,
    Demand,
    QueueLimits,
    with_queue,
)
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.wait_estimator import Forecast

from ..calls import item_call

SHORT, LONG = Forecast(0.5, 0.25), Forecast(10.0, 0.25)


def unknown() -> None:
    return None


def test_too_many_requests_are_refused() -> None:
    admission = Admission(QueueLimits(waiting_calls=2))
    first = item_call(1, 1)
    for call in (first, item_call(1)):
        admission.admit(call, 0.0, unknown)
    with pytest.raises(OverloadedError, match="the queue is full: 2 requests wait, 1 more exceed 2") as refused:
        admission.admit(item_call(1), 0.0, unknown)
    assert refused.value.retry_after_seconds == RETRY_SECONDS
    admission.release(first, first.rows[0])
    assert admission.calls == 2
    admission.release(first, first.rows[1])
    admission.admit(item_call(1), 0.0, unknown)
    assert (admission.calls, admission.rows, admission.tokens) == (2, 2, 2)
    assert admission.counters.rejected == 1


@pytest.mark.parametrize(
    ("forecast", "seconds"),
    [(LONG, 5.0), (Forecast(0.01, 0.1), SHORTEST_RETRY_SECONDS), (Forecast(1_000.0, 0.1), LONGEST_RETRY_SECONDS)],
)
def test_a_full_queue_says_when_half_of_it_will_be_done(forecast: Forecast, seconds: float) -> None:
    admission = Admission(QueueLimits(waiting_rows=1))
    admission.admit(item_call(1), 0.0, unknown)
    with pytest.raises(OverloadedError) as refused:
        admission.admit(item_call(1), 0.0, lambda: forecast)
    assert refused.value.retry_after_seconds == seconds


def test_a_deadline_that_cannot_be_met_is_refused_in_plain_words() -> None:
    admission = Admission(QueueLimits())
    with pytest.raises(OverloadedError) as refused:
        admission.admit(item_call(1, deadline=107.5), 100.0, lambda: LONG)
    assert str(refused.value) == (
        "the deadline cannot be met: it is in 7.50 s, but a wait of 10.00 s and then 0.25 s of work are expected"
    )
    assert refused.value.retry_after_seconds == 5.0
    assert (admission.calls, admission.counters.rejected) == (0, 1)


def test_who_has_the_time_is_let_in() -> None:
    admission = Admission(QueueLimits())
    admission.admit(item_call(1, deadline=100.8), 100.0, lambda: SHORT)
    admission.admit(item_call(1), 100.0, lambda: LONG)
    admission.admit(item_call(1, deadline=100.1), 100.0, unknown)
    assert admission.calls == 3


def test_refusing_late_calls_can_be_switched_off() -> None:
    admission = Admission(QueueLimits(refuses_late=False))
    admission.admit(item_call(1, deadline=101.0), 100.0, lambda: LONG)
    assert admission.calls == 1


def test_a_wait_that_is_too_long_is_refused_without_a_deadline_too() -> None:
    admission = Admission(QueueLimits(waiting_seconds=2.0))
    admission.admit(item_call(1), 0.0, lambda: SHORT)
    with pytest.raises(OverloadedError, match=r"a wait of 10.00 s is expected, at most 2.00 s") as refused:
        admission.admit(item_call(1), 0.0, lambda: LONG)
    assert refused.value.retry_after_seconds == 8.0


def test_a_demand_is_checked_before_there_is_a_call() -> None:
    admission = Admission(QueueLimits(waiting_rows=5))
    assert admission.check(Demand(5, 0, None), 0.0, unknown) == 0
    with pytest.raises(InvalidInputError, match=r"pairs: 6 rows in one request, at most 5 can wait \(--max-queue-rows\)"):
        admission.check(Demand(6, 0, None, "pairs"), 0.0, unknown)
    with pytest.raises(OverloadedError):
        admission.check(Demand(1, 0, 1.0), 0.0, lambda: LONG)
    with pytest.raises(DeadlineError):
        admission.check(Demand(1, 0, 1.0), 1.0, unknown)
    admission.close()
    with pytest.raises(UnavailableError):
        admission.check(Demand(1, 0, None), 0.0, unknown)
    assert (admission.calls, admission.counters.rejected, admission.counters.expired) == (0, 1, 1)


def test_it_learns_from_forecasts_that_were_too_short() -> None:
    admission = Admission(QueueLimits())
    admission.check(Demand(1, 1, 1.0), 0.0, lambda: SHORT)
    for _ in range(100):
        call = item_call(1, deadline=0.8)
        admission.admit(item_call(1, deadline=9.0), 0.0, lambda: SHORT)
        call.foretold = SHORT.total
        assert admission.is_dead(call, 0.8)
    with pytest.raises(OverloadedError, match=r"a wait of 1.50 s and then 0.75 s of work"):
        admission.check(Demand(1, 1, 1.0), 0.0, lambda: SHORT)
    assert admission.counters.expired == 100
    for _ in range(2_000):
        call = item_call(1, deadline=9.0)
        admission.admit(call, 0.0, lambda: SHORT)
        admission.finish(call, 0.5)
    admission.check(Demand(1, 1, 1.0), 0.0, lambda: SHORT)


def test_calls_that_nothing_was_foretold_of_teach_nothing() -> None:
    admission = Admission(QueueLimits())
    for _ in range(100):
        call = item_call(1, deadline=0.8)
        admission.admit(call, 0.0, unknown)
        assert admission.is_dead(call, 0.8)
    admission.check(Demand(1, 1, 0.76), 0.0, lambda: SHORT)


def test_a_caller_that_leaves_at_its_deadline_has_waited_too_long() -> None:
    admission = Admission(QueueLimits())
    expired, cancelled = item_call(1, deadline=5.0), item_call(1, deadline=5.0)
    admission.cancel(expired, 4.999)
    admission.cancel(cancelled, 4.0)
    admission.cancel(cancelled, 9.0)  # too late: no effect
    assert isinstance(expired.error, DeadlineError)
    assert isinstance(cancelled.error, CancelledError)
    assert (admission.counters.expired, admission.counters.cancelled) == (1, 1)


def test_an_engines_limits_take_over_those_of_a_queue() -> None:
    limits = with_queue(BatchLimits(batch_rows=7), QueueLimits(1, 2, 3, 4.0, False))
    assert (limits.batch_rows, limits.waiting_rows, limits.waiting_tokens, limits.waiting_calls) == (7, 1, 2, 3)
    assert (limits.waiting_seconds, limits.refuses_late) == (4.0, False)
    assert math.isinf(QueueLimits().waiting_seconds)


def test_calls_in_time_that_nobody_foretold_make_bolder_too() -> None:
    admission = Admission(QueueLimits())

    def foretold() -> Forecast:
        return SHORT

    for _ in range(40):  # late
        call = item_call(1, deadline=1.0)
        admission.admit(call, 0.0, unknown)
        call.foretold = SHORT.total
        admission.release(call, *call.rows)
        admission.is_dead(call, 1.0)
    with pytest.raises(OverloadedError):
        admission.check(Demand(1, 1, 1.5), 0.0, foretold)
    for _ in range(2_000):
        call = item_call(1, deadline=1.0)
        admission.admit(call, 0.0, unknown)
        admission.release(call, *call.rows)
        admission.finish(call, 0.5)
    assert admission.check(Demand(1, 1, 1.5), 0.0, foretold) == SHORT.total
