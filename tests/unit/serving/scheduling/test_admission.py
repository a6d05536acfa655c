"""Admission, deadlines, retries and shutdown, the same in both schedulers; the time is a plain number."""

import gc
import math
import re
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

from triptych_serving.errors import CancelledError, DeadlineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.scheduling.admission import (
    LONGEST_RETRY_SECONDS,
    RETRY_SECONDS,
    SHORTEST_RETRY_SECONDS,
    SWEEP_SECONDS,
    CallQueue,
    Demand,
    QueueLimits,
    with_queue,
)
from triptych_serving.scheduling.batch_scheduler import STALE_ITEMS, BatchLimits, BatchScheduler
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, LaneKind
from triptych_serving.scheduling.request import Call
from triptych_serving.scheduling.wait_estimator import ExpectedCall, Forecast

from ..calls import RecordedCall, item_call, make_call, rows_of

SHORT, LONG = Forecast(0.5, 0.25), Forecast(10.0, 0.25)
LATER = 2 * SWEEP_SECONDS


def unknown() -> None:
    return None


@dataclass
class Scheduler:
    """One of the two, behind the same functions."""

    kind: str

    def make(self, *calls: Call[Any], now: float = 0.0, **limits: Any) -> CallQueue[Any]:
        decodes = self.kind == "decode"
        queue: CallQueue[Any] = DecodeScheduler(DecodeLimits(**limits)) if decodes else BatchScheduler(BatchLimits(**limits))
        for call in calls:
            queue.submit(call, now)
        return queue

    def call(self, *sizes: int, deadline: float | None = None) -> RecordedCall:
        if self.kind == "batch":
            return item_call(*sizes, deadline=deadline)
        return make_call(rows=len(sizes), source=[7] * sizes[0], deadline=deadline)

    def take(self, queue: Any, now: float = 0.0, running: Any = ()) -> list[Call[Any]]:
        """Return the calls whose rows run next."""
        if self.kind == "batch":
            return [item.call for item in queue.plan(1, now)]
        return [row.call for row in queue.plan(LaneKind.GREEDY, running, 64 - len(running), 1, now).join]


@pytest.fixture(params=["decode", "batch"])
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    return Scheduler(request.param)


def cancelled(call: RecordedCall) -> RecordedCall:
    call.fail(CancelledError("gone"))
    return call


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"waiting_rows": 10}, "6 rows are waiting, 5 more exceed the limit of 10 (--max-queue-rows)"),
        ({"waiting_tokens": 50}, "30 tokens are waiting, 25 more exceed the limit of 50 (--max-queue-tokens)"),
        ({"waiting_calls": 1}, "1 requests are waiting, 1 more exceed the limit of 1 (--max-queue-requests)"),
    ],
)
def test_a_full_queue_rejects_whole_calls(scheduler: Scheduler, limits: dict[str, int], message: str) -> None:
    queue = scheduler.make(scheduler.call(*[5] * 6), **limits)
    with pytest.raises(OverloadedError, match=re.escape(f"the queue is full: {message}")) as rejected:
        queue.submit(scheduler.call(*[5] * 5), 0.0)
    assert rejected.value.retry_after_seconds == RETRY_SECONDS
    assert (queue.waiting, queue.calls, queue.counters.rejected) == (6, 1, 1)
    scheduler.take(queue)
    queue.submit(scheduler.call(*[5] * 5), 0.0)
    assert (queue.rows, queue.tokens, queue.calls) == (5, 25, 1)


@pytest.mark.parametrize("sizes", [[1] * 11, [101]])
def test_a_call_larger_than_the_whole_queue_is_invalid(scheduler: Scheduler, sizes: list[int]) -> None:
    queue = scheduler.make(waiting_rows=10, waiting_tokens=100)
    with pytest.raises(InvalidInputError, match=r"contents: 1\d+ (rows|tokens) in one request, at most 10+ can wait"):
        queue.submit(scheduler.call(*sizes), 0.0)


@pytest.mark.parametrize(
    ("forecast", "seconds"),
    [(LONG, 5.0), (Forecast(0.01, 0.1), SHORTEST_RETRY_SECONDS), (Forecast(1_000.0, 0.1), LONGEST_RETRY_SECONDS)],
)
def test_a_full_queue_suggests_to_retry_when_half_of_it_is_done(forecast: Forecast, seconds: float) -> None:
    queue = Scheduler("batch").make(item_call(1), waiting_rows=1)
    with pytest.raises(OverloadedError) as rejected:
        queue.check_demand(Demand(1, 1, None), 0.0, lambda: forecast)
    assert rejected.value.retry_after_seconds == seconds


def test_a_deadline_that_cannot_be_met_is_rejected_with_figures() -> None:
    queue = Scheduler("batch").make()
    with pytest.raises(OverloadedError) as rejected:
        queue.check_demand(Demand(1, 1, 107.5), 100.0, lambda: LONG)
    assert str(rejected.value) == "the deadline in 7.50 s cannot be met: expect 10.00 s of waiting and 0.25 s of work"
    assert rejected.value.retry_after_seconds == 5.0
    assert queue.counters.rejected == 1
    assert queue.check_demand(Demand(1, 1, 100.8), 100.0, lambda: SHORT) == SHORT.total
    assert queue.check_demand(Demand(1, 1, None), 100.0, lambda: LONG) == 0
    assert queue.check_demand(Demand(1, 1, 100.1), 100.0, unknown) == 0
    careless = Scheduler("batch").make(refuses_late=False)
    assert careless.check_demand(Demand(1, 1, 101.0), 100.0, lambda: LONG) == 0


def test_a_wait_above_the_limit_is_rejected() -> None:
    queue = Scheduler("batch").make(waiting_seconds=2.0)
    queue.check_demand(Demand(1, 1, None), 0.0, lambda: SHORT)
    with pytest.raises(OverloadedError, match=r"the expected wait is 10.00 s, the limit 2.00 s") as rejected:
        queue.check_demand(Demand(1, 1, None), 0.0, lambda: LONG)
    assert rejected.value.retry_after_seconds == 8.0


def test_a_demand_is_checked_before_there_is_a_call() -> None:
    queue = Scheduler("batch").make(waiting_rows=5)
    assert queue.check_demand(Demand(5, 0, None), 0.0, unknown) == 0
    with pytest.raises(InvalidInputError, match=r"pairs: 6 rows in one request, at most 5 can wait \(--max-queue-rows\)"):
        queue.check_demand(Demand(6, 0, None, "pairs"), 0.0, unknown)
    with pytest.raises(InvalidInputError, match=r"prompts: 6 rows in one request"):
        queue.check(ExpectedCall(6, field="prompts"), None, 0.0)
    with pytest.raises(DeadlineError):
        queue.check_demand(Demand(1, 0, 1.0), 1.0, unknown)
    queue.close("the model is shutting down")
    with pytest.raises(UnavailableError):
        queue.check_demand(Demand(1, 0, None), 0.0, unknown)
    assert (queue.calls, queue.counters.rejected, queue.counters.expired) == (0, 0, 1)


def admit(queue: CallQueue[Any], deadline: float, forecast_seconds: float) -> RecordedCall:
    """Submit a call and let it leave the queue."""
    call = item_call(1, deadline=deadline)
    queue.submit(call, 0.0)
    queue.plan(1, 0.0)  # type: ignore[attr-defined]
    call.forecast_seconds = forecast_seconds
    return call


def test_late_calls_lengthen_forecasts_and_calls_in_time_shorten_them() -> None:
    queue = Scheduler("batch").make()
    for _ in range(100):
        assert queue.expire(admit(queue, 0.8, SHORT.total), 0.8)
    with pytest.raises(OverloadedError, match=r"expect 1.50 s of waiting and 0.75 s of work"):
        queue.check_demand(Demand(1, 1, 1.0), 0.0, lambda: SHORT)
    assert queue.counters.expired == 100
    for _ in range(2_000):
        queue.finish(admit(queue, 9.0, 0.0), 0.5)
    queue.check_demand(Demand(1, 1, 1.0), 0.0, lambda: SHORT)


def test_late_calls_without_a_forecast_do_not_count() -> None:
    queue = Scheduler("batch").make()
    for _ in range(100):
        assert queue.expire(admit(queue, 0.8, 0.0), 0.8)
    queue.check_demand(Demand(1, 1, 0.76), 0.0, lambda: SHORT)


def test_a_caller_that_leaves_at_its_deadline_has_waited_too_long() -> None:
    queue = Scheduler("batch").make()
    expired, gone = item_call(1, deadline=5.0), item_call(1, deadline=5.0)
    queue.cancel(expired, 4.999)
    queue.cancel(gone, 4.0)
    queue.cancel(gone, 9.0)  # too late: no effect
    assert isinstance(expired.error, DeadlineError)
    assert isinstance(gone.error, CancelledError)
    assert (queue.counters.expired, queue.counters.cancelled) == (1, 1)


def test_the_bounds_of_a_queue_replace_those_of_an_engine() -> None:
    limits = with_queue(BatchLimits(batch_rows=7), QueueLimits(1, 2, 3, 4.0, False))
    assert (limits.batch_rows, limits.waiting_rows, limits.waiting_tokens, limits.waiting_calls) == (7, 1, 2, 3)
    assert (limits.waiting_seconds, limits.refuses_late) == (4.0, False)
    assert math.isinf(QueueLimits().waiting_seconds)


def test_a_call_whose_deadline_has_passed_is_rejected(scheduler: Scheduler) -> None:
    with pytest.raises(DeadlineError):
        scheduler.make(scheduler.call(5, deadline=1.0), now=1.0)


def test_a_waiting_call_ends_at_its_deadline(scheduler: Scheduler) -> None:
    hasty, patient = scheduler.call(5, 5, 5, deadline=1.0), scheduler.call(5, deadline=9.0)
    queue = scheduler.make(hasty, patient)
    assert scheduler.take(queue, now=1.0) == [patient]
    assert isinstance(hasty.error, DeadlineError)
    assert hasty.listener.ends == 1
    assert (queue.waiting, queue.counters.expired, queue.counters.freed) == (0, 1, 3)


@pytest.mark.parametrize("gone_first", [True, False])
@pytest.mark.parametrize("now", [LATER, SWEEP_SECONDS / 2])
def test_a_cancelled_call_never_runs(scheduler: Scheduler, now: float, gone_first: bool) -> None:
    """The whole queue is swept before its turn, or not."""
    gone, other = scheduler.call(5, 5, 5), scheduler.call(5, 5)
    queue = scheduler.make(scheduler.call(5))
    scheduler.take(queue)  # sweeps, and not again before LATER
    for call in (gone, other) if gone_first else (other, gone):
        queue.submit(call, 0.0)
    cancelled(gone)
    assert scheduler.take(queue, now) == [other, other]
    assert scheduler.take(queue, now) == []
    assert (queue.waiting, queue.counters.freed) == (0, 3)


def test_a_cancelled_call_makes_room_before_its_turn(scheduler: Scheduler) -> None:
    call = scheduler.call(*[900] * 10)
    queue = scheduler.make(call, scheduler.call(5), waiting_rows=11)
    cancelled(call)
    assert len(scheduler.take(queue, LATER)) == 1
    queue.submit(scheduler.call(*[4] * 11), LATER)
    assert queue.waiting == 11


def test_cancelled_calls_are_freed(scheduler: Scheduler) -> None:
    queue = scheduler.make(scheduler.call(*[4] * 200))
    calls = [scheduler.call(700 + index % 50) for index in range(1_000)]
    for call in calls:
        queue.submit(call, 0.0)
        cancelled(call)
    remembered = [weakref.ref(call) for call in calls]
    del call, calls
    scheduler.take(queue, LATER)
    gc.collect()
    assert sum(ref() is not None for ref in remembered) <= STALE_ITEMS


def test_a_call_with_results_is_freed_without_the_garbage_collector(scheduler: Scheduler) -> None:
    call = scheduler.call(5, 5)
    queue = scheduler.make(call)
    assert scheduler.take(queue) == [call, call]
    gc.disable()
    try:
        for _ in range(2):
            call.count_down()
        scheduler.take(queue, LATER)  # sweeps
        remembered = weakref.ref(call)
        del call
        assert remembered() is None
    finally:
        gc.enable()


def test_retried_rows_run_alone_and_first(scheduler: Scheduler) -> None:
    failed, waiting = [scheduler.call(5), scheduler.call(5)], scheduler.call(5)
    queue = scheduler.make(*failed)
    scheduler.take(queue)
    queue.submit(waiting, 0.0)
    queue.retry(rows_of(*failed))
    assert queue.waiting == 3
    assert [scheduler.take(queue) for _ in range(4)] == [[failed[0]], [failed[1]], [waiting], []]
    assert [call.rows[0].alone for call in (*failed, waiting)] == [True, True, False]


def test_a_retried_row_drops_its_partial_results() -> None:
    decoded, computed = make_call(), item_call(5)
    decoded.rows[0].tokens.extend([7, 8])
    computed.rows[0].result = "partial"
    Scheduler("decode").make().retry(decoded.rows)
    Scheduler("batch").make().retry(computed.rows)
    assert (decoded.rows[0].tokens, computed.rows[0].result) == ([], None)


@pytest.mark.parametrize("now", [LATER, SWEEP_SECONDS / 2])
def test_a_cancelled_retry_never_runs(scheduler: Scheduler, now: float) -> None:
    call, waiting = scheduler.call(5), scheduler.call(5)
    queue = scheduler.make(call)
    scheduler.take(queue)
    queue.retry(call.rows)
    queue.submit(waiting, 0.0)
    cancelled(call)
    assert scheduler.take(queue, now) == [waiting]
    assert queue.waiting == 0


def test_a_closed_queue_rejects_new_calls_and_serves_waiting_ones(scheduler: Scheduler) -> None:
    waiting = scheduler.call(5)
    queue = scheduler.make(waiting)
    queue.close("the model is shutting down")
    with pytest.raises(UnavailableError):
        queue.submit(scheduler.call(5), 0.0)
    assert scheduler.take(queue) == [waiting]


def test_draining_empties_the_queue(scheduler: Scheduler) -> None:
    retried, waiting, partly = scheduler.call(5), scheduler.call(6), scheduler.call(7, 2_000)
    queue = scheduler.make(retried)
    scheduler.take(queue)
    queue.retry(retried.rows)
    for call in (waiting, partly):
        queue.submit(call, 0.0)
    assert queue.drain() == [waiting, partly, retried]
    assert (queue.waiting, queue.calls, scheduler.take(queue, LATER)) == (0, 0, [])
    queue.submit(waiting, LATER)
    assert scheduler.take(queue, LATER) == [waiting]


def test_a_call_needs_rows() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        make_call(rows=0)
