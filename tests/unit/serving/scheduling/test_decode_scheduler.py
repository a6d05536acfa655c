"""Rows that join and leave lanes, with the time as a plain number."""

from collections.abc import Sequence

import numpy as np
import pytest

from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.errors import CancelledError, DeadlineError, OverloadedError
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, LaneKind, LanePlan
from triptych_serving.scheduling.request import Call, Row
from triptych_serving.scheduling.wait_estimator import ExpectedCall

from ..calls import RecordedCall, call_of, make_call, rows_of

SLOTS = 32


def scheduler_with(*calls: Call[Row], limits: DecodeLimits | None = None, now: float = 0.0) -> DecodeScheduler:
    scheduler = DecodeScheduler(limits or DecodeLimits())
    for call in calls:
        scheduler.submit(call, now)
    return scheduler


def plan(
    scheduler: DecodeScheduler, running: Sequence[Row] = (), slots: int = SLOTS, idle_workers: int = 1, now: float = 0.0
) -> LanePlan:
    return scheduler.plan(LaneKind.GREEDY, running, slots - len(running), idle_workers, now)


def calls_of(plan: LanePlan) -> list[Call[Row]]:
    return [row.call for row in plan.join]


def searching(rows: int = 1, beam_size: int = 4, source: Sequence[int] = (5, 6, 2)) -> RecordedCall:
    return call_of(*(Row(source, 10, SearchParams(beam_size=beam_size)) for _ in range(rows)))


def cancelled(call: RecordedCall) -> RecordedCall:
    call.fail(CancelledError("gone"))
    return call


def test_a_small_call_waits_for_one_row_of_a_big_one() -> None:
    big, small = make_call(rows=2_000), make_call()
    assert calls_of(plan(scheduler_with(big, small), slots=4)) == [big, small, big, big]


def test_the_most_urgent_call_of_a_round_is_first() -> None:
    patient, soon, sooner = make_call(rows=2), make_call(rows=2, deadline=9.0), make_call(rows=2, deadline=5.0)
    assert calls_of(plan(scheduler_with(patient, soon, sooner))) == [sooner, soon, patient] * 2


def test_beams_take_as_many_slots_as_they_are_wide() -> None:
    wide, narrow = searching(rows=50, beam_size=8), searching(rows=50, beam_size=2)
    joined = calls_of(scheduler_with(wide, narrow).plan(LaneKind.SEARCH, (), 32, 1, 0.0))
    assert (joined.count(wide), joined.count(narrow)) == (2, 8)
    running = rows_of(*(searching(beam_size=8) for _ in range(3)))
    for free, joins in ((7, 0), (8, 1)):
        plan = scheduler_with(searching(beam_size=8)).plan(LaneKind.SEARCH, running, free, 0, 0.0)
        assert len(plan.join) == joins


def test_slots_of_leaving_rows_are_filled_in_the_same_plan() -> None:
    gone = cancelled(searching(rows=8))
    assert len(scheduler_with(searching(rows=9)).plan(LaneKind.SEARCH, rows_of(gone), 0, 0, 0.0).join) == 8
    gone, waiting = cancelled(make_call(rows=SLOTS)), make_call(rows=SLOTS)
    decided = plan(scheduler_with(waiting), rows_of(gone))
    assert len(decided.leave) == SLOTS
    assert calls_of(decided) == [waiting] * SLOTS


def test_lanes_do_not_wait_for_each_other() -> None:
    greedy, search = make_call(rows=40), searching(rows=3)
    short = call_of(Row((5, 2), 10, shortlist=np.arange(9)), Row((5, 2), 10))
    scheduler = scheduler_with(greedy, search, short)
    assert len(scheduler.plan(LaneKind.SEARCH, (), 32, 1, 0.0).join) == 3
    assert list(scheduler.plan(LaneKind.SHORT_GREEDY, (), 32, 1, 0.0).join) == [short.rows[0]]
    assert calls_of(plan(scheduler)).count(short) == 1
    assert not scheduler.waits(LaneKind.SEARCH)
    assert scheduler.waits(LaneKind.GREEDY)


@pytest.mark.parametrize(("streams", "sizes"), [(True, [2, 4, 2, 3]), (False, [4, 3, 2, 2])])
def test_rows_of_a_call_keep_their_order_where_the_caller_sees_it(streams: bool, sizes: list[int]) -> None:
    call = RecordedCall([Row([5] * size, 10) for size in (2, 4, 2, 3)], streams=streams)
    joined = plan(scheduler_with(call)).join
    assert [row.size for row in joined] == sizes
    assert [row for row in joined if row.size == 2] == [call.rows[0], call.rows[2]]


def test_no_more_rows_join_than_there_are_slots() -> None:
    scheduler = scheduler_with(make_call(rows=100))
    running = plan(scheduler, slots=7).join
    assert len(running) == 7
    assert scheduler.waiting == 93
    assert plan(scheduler, running, slots=7) == LanePlan()


@pytest.mark.parametrize(("length", "prefill_tokens", "joined"), [(10, 45, 4), (100, 10, 1)])
def test_prefill_beside_running_rows_is_bounded(length: int, prefill_tokens: int, joined: int) -> None:
    limits = DecodeLimits(prefill_tokens=prefill_tokens)
    scheduler = scheduler_with(make_call(rows=100, source=[7] * length), limits=limits)
    assert len(plan(scheduler, rows_of(make_call())).join) == joined
    assert len(plan(scheduler).join) == SLOTS, "an idle worker has no bound"


@pytest.mark.parametrize(("limits", "on_gpus", "joined"), [({}, False, 12), ({}, True, 102), ({"prefill_tokens": 80}, True, 2)])
def test_more_tokens_are_prefilled_at_once_on_gpus(limits: dict[str, int], on_gpus: bool, joined: int) -> None:
    scheduler = DecodeScheduler(DecodeLimits(**limits), on_gpus=on_gpus)
    scheduler.submit(make_call(rows=200, source=[7] * 40), 0.0)
    assert len(plan(scheduler, rows_of(make_call()), slots=256).join) == joined


def test_prefill_counts_padding() -> None:
    short, long = make_call(rows=10, source=[7]), make_call(source=[7] * 20)
    scheduler = scheduler_with(short, long, limits=DecodeLimits(prefill_tokens=60))
    assert calls_of(plan(scheduler, rows_of(make_call()))) == [short, long, short]


def test_a_long_queue_fills_several_slots_at_once() -> None:
    scheduler = scheduler_with(make_call(rows=100))
    running = plan(scheduler).join
    assert not plan(scheduler, running[:-7]).join
    assert len(plan(scheduler, running[:-8]).join) == 8


@pytest.mark.parametrize(("running", "waiting", "joined"), [(SLOTS - 1, 1, 1), (20, 8, 8), (3, 1, 1)])
def test_rows_join_at_once(running: int, waiting: int, joined: int) -> None:
    """A queue that has waited, one that is long enough, and one beside few rows."""
    now = 1.0 if running == SLOTS - 1 else 0.0
    scheduler = scheduler_with(make_call(rows=waiting))
    assert len(plan(scheduler, rows_of(make_call(rows=running)), now=now).join) == joined


def test_a_few_rows_beside_a_busy_lane_gather_for_a_short_time() -> None:
    running = rows_of(make_call(rows=20))
    scheduler = scheduler_with(make_call(), now=1.0)
    assert not plan(scheduler, running, now=1.001).join
    scheduler.submit(make_call(), 1.002)
    assert len(plan(scheduler, running, now=1.005).join) == 2


@pytest.mark.parametrize("slots", [2, 4, 7])
def test_few_slots_are_refilled_one_by_one(slots: int) -> None:
    running = rows_of(make_call(rows=slots - 1))
    assert len(plan(scheduler_with(make_call(rows=100)), running, slots=slots).join) == 1


def test_idle_workers_share_a_short_queue() -> None:
    scheduler = scheduler_with(make_call(rows=8))
    assert [len(plan(scheduler, idle_workers=idle).join) for idle in (4, 3, 2, 1)] == [2, 2, 2, 2]


def test_rows_leave_at_their_deadline_even_behind_a_full_worker() -> None:
    call, waiting = make_call(rows=2, deadline=1.0), make_call(deadline=1.0)
    scheduler = scheduler_with(call)
    running = plan(scheduler).join
    scheduler.submit(waiting, 0.0)
    assert plan(scheduler, running, slots=2, now=0.9).leave == ()
    assert [row.call for row in plan(scheduler, running, slots=2, now=1.0).leave] == [call, call]
    assert [type(each.error) for each in (call, waiting)] == [DeadlineError, DeadlineError]
    assert scheduler.waiting == 0


def test_running_rows_finish_before_a_retry_and_nothing_joins_it() -> None:
    scheduler, retried = scheduler_with(), make_call()
    scheduler.retry(retried.rows)
    assert not plan(scheduler, rows_of(make_call())).join
    alone = plan(scheduler)
    assert calls_of(alone) == [retried]
    scheduler.submit(make_call(), 0.0)
    assert plan(scheduler, alone.join) == LanePlan()


def test_a_lane_that_is_behind_does_not_reject_rows_of_another() -> None:
    """A greedy row ends every tenth of a second and 400 wait; no row searches."""
    scheduler = scheduler_with(make_call(rows=500))
    running = list(plan(scheduler, slots=1).join)
    for index in range(1, 100):
        [row] = running
        row.started, row.ended = index / 10 - 0.1, index / 10
        scheduler.served(row)
        running = list(plan(scheduler, slots=1, now=index / 10).join)
    for _ in range(400):
        scheduler.submit(make_call(), 10.0)
    with pytest.raises(OverloadedError, match=r"the deadline in 35.00 s cannot be met: expect 40.\d\d s of waiting"):
        scheduler.submit(make_call(deadline=45.0), 10.0)
    with pytest.raises(OverloadedError):
        scheduler.check(ExpectedCall(), 45.0, 10.0)
    with pytest.raises(OverloadedError):
        scheduler.check(ExpectedCall(100), 105.0, 10.0)  # 90 s of waiting, and 10 s for rows of its own
    scheduler.check(ExpectedCall(30), 105.0, 10.0)
    scheduler.submit(make_call(deadline=11.0), 10.0)  # it goes before the patient ones
    scheduler.submit(searching(), 10.0)
    scheduler.check(ExpectedCall(greedy=False), 45.0, 10.0)
