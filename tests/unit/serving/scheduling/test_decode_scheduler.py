"""The scheduler, with the time as a plain number."""

from collections.abc import Sequence

import numpy as np
import pytest

from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.errors import (
    CancelledError,
    DeadlineError,
    InvalidInputError,
    OverloadedError,
    UnavailableError,
)
from triptych_serving.scheduling.admission import SWEEP_SECONDS
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, DecodeScheduler, Job, LaneKind, LanePlan
from triptych_serving.scheduling.request import Call, Row

from ..calls import RecordedCall, call_of, jobs_of, make_call

SLOTS = 32
LATER = 2 * SWEEP_SECONDS


def scheduler_with(*calls: Call[Row], limits: DecodeLimits | None = None, now: float = 0.0) -> DecodeScheduler:
    scheduler = DecodeScheduler(limits or DecodeLimits())
    for call in calls:
        scheduler.submit(call, now)
    return scheduler


def plan(
    scheduler: DecodeScheduler, running: Sequence[Job] = (), slots: int = SLOTS, idle_workers: int = 1, now: float = 0.0
) -> LanePlan:
    return scheduler.plan(LaneKind.GREEDY, running, slots - len(running), idle_workers, now)


def who(plan: LanePlan) -> list[Call[Row]]:
    return [job.call for job in plan.join]


def test_a_small_call_waits_for_one_turn_of_a_big_one() -> None:
    big, small = make_call(rows=2_000), make_call()
    assert who(plan(scheduler_with(big, small), slots=4)) == [big, small, big, big]


def test_a_small_call_that_comes_later_joins_with_the_next_rows() -> None:
    big, small = make_call(rows=2_000), make_call()
    scheduler = scheduler_with(big)
    running = plan(scheduler, slots=8).join
    scheduler.submit(small, 1.0)
    assert small in who(plan(scheduler, running[:6], slots=8, now=1.0))


def test_within_a_turn_the_most_urgent_call_is_first() -> None:
    patient, soon, sooner = make_call(rows=2), make_call(rows=2, deadline=9.0), make_call(rows=2, deadline=5.0)
    assert who(plan(scheduler_with(patient, soon, sooner))) == [sooner, soon, patient] * 2


def test_an_urgent_call_takes_one_turn_like_all_others() -> None:
    big, urgent = make_call(rows=100), make_call(rows=100, deadline=1.0)
    taken = who(plan(scheduler_with(big, urgent), slots=10))
    assert taken.count(big) == taken.count(urgent)


def test_a_late_call_does_not_get_the_turns_that_it_missed() -> None:
    big = make_call(rows=100)
    scheduler = scheduler_with(big)
    plan(scheduler, slots=30)
    late = make_call(rows=100)
    scheduler.submit(late, 1.0)
    taken = who(plan(scheduler, slots=20, now=1.0))
    assert abs(taken.count(late) - taken.count(big)) <= 1


def searching(rows: int = 1, beam_size: int = 4, source: Sequence[int] = (5, 6, 2)) -> RecordedCall:
    return call_of(*(Row(source, 10, SearchParams(beam_size=beam_size)) for _ in range(rows)))


def test_beams_take_as_many_slots_as_they_are_wide() -> None:
    scheduler = scheduler_with(searching(rows=20))
    assert len(scheduler.plan(LaneKind.SEARCH, (), 32, 1, 0.0).join) == 8


def test_a_beam_waits_until_all_its_slots_are_free() -> None:
    scheduler = scheduler_with(searching(beam_size=8))
    running = jobs_of(searching(beam_size=8), searching(beam_size=8), searching(beam_size=8))
    assert not scheduler.plan(LaneKind.SEARCH, running, 7, 0, 0.0).join
    assert len(scheduler.plan(LaneKind.SEARCH, running, 8, 0, 0.0).join) == 1


def test_slots_of_leaving_beams_count() -> None:
    gone = cancelled(searching(rows=8))
    assert len(scheduler_with(searching(rows=9)).plan(LaneKind.SEARCH, jobs_of(gone), 0, 0, 0.0).join) == 8


def test_lanes_do_not_wait_for_each_other() -> None:
    greedy, search = make_call(rows=40), searching(rows=3)
    short = call_of(Row((5, 2), 10, shortlist=np.arange(9)), Row((5, 2), 10))
    scheduler = scheduler_with(greedy, search, short)
    assert len(scheduler.plan(LaneKind.SEARCH, (), 32, 1, 0.0).join) == 3
    assert [job.row for job in scheduler.plan(LaneKind.SHORT_GREEDY, (), 32, 1, 0.0).join] == [short.rows[0]]
    assert who(plan(scheduler)).count(short) == 1
    assert not scheduler.waits(LaneKind.SEARCH)
    assert scheduler.waits(LaneKind.GREEDY)


def test_endings_are_counted() -> None:
    expired, gone = make_call(rows=3, deadline=1.0), make_call(rows=2)
    scheduler = scheduler_with(expired, gone)
    cancelled(gone)
    plan(scheduler, now=1.0)
    assert scheduler.counters.expired == 1
    assert scheduler.counters.freed == 5


def test_rows_of_a_call_keep_their_order() -> None:
    call = make_call(rows=5)
    assert [job.row for job in plan(scheduler_with(call)).join] == list(call.rows)


def test_no_more_rows_join_than_there_are_slots() -> None:
    scheduler = scheduler_with(make_call(rows=100))
    assert len(plan(scheduler, slots=7).join) == 7
    assert scheduler.waiting == 93


def test_a_full_worker_admits_nobody() -> None:
    scheduler = scheduler_with(make_call(rows=100))
    running = plan(scheduler, slots=7).join
    assert plan(scheduler, running, slots=7) == LanePlan()


def test_prefill_beside_running_rows_is_bounded_by_padded_tokens() -> None:
    scheduler = scheduler_with(make_call(rows=100, source=[7] * 10), limits=DecodeLimits(prefill_tokens=45))
    assert len(plan(scheduler, jobs_of(make_call())).join) == 4


def test_prefill_counts_padding() -> None:
    short, long = make_call(rows=10, source=[7]), make_call(source=[7] * 20)
    scheduler = scheduler_with(short, long, limits=DecodeLimits(prefill_tokens=60))
    assert who(plan(scheduler, jobs_of(make_call()))) == [short, long, short]


def test_a_row_over_the_prefill_budget_joins_by_itself() -> None:
    scheduler = scheduler_with(make_call(rows=2, source=[7] * 100), limits=DecodeLimits(prefill_tokens=10))
    assert len(plan(scheduler, jobs_of(make_call())).join) == 1


def test_an_idle_worker_has_no_prefill_budget() -> None:
    scheduler = scheduler_with(make_call(rows=20, source=[7] * 100), limits=DecodeLimits(prefill_tokens=10))
    assert len(plan(scheduler).join) == 20


def test_a_long_queue_fills_several_slots_at_once() -> None:
    scheduler = scheduler_with(make_call(rows=100))
    running = plan(scheduler).join
    assert not plan(scheduler, running[:-7]).join
    assert len(plan(scheduler, running[:-8]).join) == 8


def test_a_short_queue_joins_at_once() -> None:
    running = jobs_of(make_call(rows=SLOTS - 1))
    assert len(plan(scheduler_with(make_call()), running, now=1.0).join) == 1


def test_a_few_that_come_to_a_busy_lane_may_gather_but_not_for_long() -> None:
    running = jobs_of(make_call(rows=20))
    scheduler = scheduler_with(make_call(), now=1.0)
    assert not plan(scheduler, running, now=1.001).join
    scheduler.submit(make_call(), 1.002)
    assert len(plan(scheduler, running, now=1.005).join) == 2


def test_enough_of_them_need_not_wait() -> None:
    running = jobs_of(make_call(rows=20))
    assert len(plan(scheduler_with(make_call(rows=8), now=1.0), running, now=1.0).join) == 8


def test_beside_a_few_rows_nobody_waits_for_company() -> None:
    assert len(plan(scheduler_with(make_call(), now=1.0), jobs_of(make_call(rows=3)), now=1.0).join) == 1


@pytest.mark.parametrize("slots", [2, 4, 7])
def test_few_slots_are_refilled_one_by_one(slots: int) -> None:
    running = jobs_of(make_call(rows=slots - 1))
    assert len(plan(scheduler_with(make_call(rows=100)), running, slots=slots).join) == 1


def test_idle_workers_share_a_short_queue() -> None:
    scheduler = scheduler_with(make_call(rows=8))
    assert [len(plan(scheduler, idle_workers=idle).join) for idle in (4, 3, 2, 1)] == [2, 2, 2, 2]


def test_too_many_rows_are_refused_whole() -> None:
    scheduler = scheduler_with(make_call(rows=6), limits=DecodeLimits(waiting_rows=10))
    with pytest.raises(OverloadedError, match="6 rows wait, 5 more exceed 10") as refused:
        scheduler.submit(make_call(rows=5), 0.0)
    assert refused.value.retry_after_seconds > 0
    assert scheduler.waiting == 6
    scheduler.submit(make_call(rows=4), 0.0)


def test_too_many_tokens_are_refused() -> None:
    scheduler = scheduler_with(make_call(rows=2, source=[7] * 40), limits=DecodeLimits(waiting_tokens=100))
    with pytest.raises(OverloadedError, match="80 tokens wait, 30 more exceed 100"):
        scheduler.submit(make_call(source=[7] * 30), 0.0)


@pytest.mark.parametrize(("rows", "source"), [(11, [7]), (1, [7] * 101)])
def test_a_call_larger_than_the_whole_queue_is_not_told_to_come_back(rows: int, source: list[int]) -> None:
    scheduler = scheduler_with(limits=DecodeLimits(waiting_rows=10, waiting_tokens=100))
    with pytest.raises(InvalidInputError, match=r"contents: 1\d+ (rows|tokens) in one request, at most 10+ can wait"):
        scheduler.submit(make_call(rows=rows, source=source), 0.0)


def test_rows_that_joined_make_room_in_the_queue() -> None:
    scheduler = scheduler_with(make_call(rows=10), limits=DecodeLimits(waiting_rows=10, waiting_tokens=30))
    plan(scheduler)
    scheduler.submit(make_call(rows=10), 0.0)


def test_a_call_whose_deadline_has_passed_is_refused() -> None:
    with pytest.raises(DeadlineError):
        scheduler_with(make_call(deadline=1.0), now=1.0)


def test_a_waiting_call_ends_at_its_deadline() -> None:
    hasty, patient = make_call(rows=3, deadline=1.0), make_call(deadline=9.0)
    scheduler = scheduler_with(hasty, patient)
    assert who(plan(scheduler, now=1.0)) == [patient]
    assert isinstance(hasty.error, DeadlineError)
    assert hasty.listener.ends == 1
    assert scheduler.waiting == 0


def test_a_call_behind_a_full_worker_hears_of_its_deadline() -> None:
    call = make_call(deadline=1.0)
    scheduler = scheduler_with(call)
    plan(scheduler, jobs_of(make_call(rows=SLOTS)), now=1.0)
    assert isinstance(call.error, DeadlineError)
    assert scheduler.waiting == 0


def test_running_rows_leave_at_their_deadline() -> None:
    call, other = make_call(rows=2, deadline=1.0), make_call()
    scheduler = scheduler_with(call, other)
    running = plan(scheduler).join
    assert plan(scheduler, running, now=0.9).leave == ()
    left = plan(scheduler, running, now=1.0).leave
    assert [job.call for job in left] == [call, call]
    assert isinstance(call.error, DeadlineError)


def test_slots_of_leaving_rows_are_filled_in_the_same_plan() -> None:
    gone, waiting = cancelled(make_call(rows=SLOTS)), make_call(rows=SLOTS)
    decided = plan(scheduler_with(waiting), jobs_of(gone))
    assert len(decided.leave) == SLOTS
    assert who(decided) == [waiting] * SLOTS


def cancelled(call: RecordedCall) -> RecordedCall:
    call.fail(CancelledError("gone"))
    return call


def test_a_cancelled_call_never_runs() -> None:
    call, other = make_call(rows=5), make_call()
    scheduler = scheduler_with(call, other)
    cancelled(call)
    assert who(plan(scheduler)) == [other]


def test_a_cancelled_call_makes_room_even_if_its_turn_never_comes() -> None:
    call = make_call(rows=10)
    scheduler = scheduler_with(call, limits=DecodeLimits(waiting_rows=10))
    running = jobs_of(make_call(rows=SLOTS))
    plan(scheduler, running)
    cancelled(call)
    plan(scheduler, running, now=LATER)
    assert scheduler.waiting == 0
    scheduler.submit(make_call(rows=10), LATER)


def test_a_retried_row_runs_alone_and_first() -> None:
    first, second, waiting = make_call(), make_call(), make_call()
    scheduler = scheduler_with(waiting)
    scheduler.retry(jobs_of(first, second))
    assert scheduler.waiting == 3

    alone = plan(scheduler)
    assert who(alone) == [first]
    assert plan(scheduler, alone.join) == LanePlan()
    alone = plan(scheduler)
    assert who(alone) == [second]
    assert plan(scheduler, alone.join) == LanePlan()
    assert who(plan(scheduler)) == [waiting]


def test_a_retried_row_starts_anew() -> None:
    call = make_call()
    call.rows[0].tokens.extend([7, 8])
    scheduler_with().retry(jobs_of(call))
    assert call.rows[0].tokens == []
    assert call.rows[0].alone


def test_running_rows_finish_before_a_retry() -> None:
    scheduler = scheduler_with()
    scheduler.retry(jobs_of(make_call()))
    assert not plan(scheduler, jobs_of(make_call())).join


def test_a_cancelled_retry_never_runs() -> None:
    call, waiting = make_call(), make_call()
    scheduler = scheduler_with(waiting)
    plan(scheduler, jobs_of(make_call(rows=SLOTS)))  # looks through the queue, and not again before LATER
    scheduler.retry(jobs_of(call))
    cancelled(call)
    assert who(plan(scheduler)) == [waiting]
    assert scheduler.waiting == 0


def test_a_closed_scheduler_refuses_what_comes_and_serves_what_waits() -> None:
    waiting = make_call()
    scheduler = scheduler_with(waiting)
    scheduler.close()
    with pytest.raises(UnavailableError):
        scheduler.submit(make_call(), 0.0)
    assert who(plan(scheduler)) == [waiting]


def test_draining_empties_the_queue() -> None:
    waiting, retried = make_call(rows=3), make_call()
    scheduler = scheduler_with(waiting)
    scheduler.retry(jobs_of(retried))
    assert scheduler.drain() == [waiting, retried]
    assert scheduler.waiting == 0
    assert plan(scheduler) == LanePlan()


def test_a_call_without_rows_would_never_end() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        make_call(rows=0)


def test_a_call_is_refused_before_it_is_made() -> None:
    scheduler = scheduler_with(make_call(rows=6), limits=DecodeLimits(waiting_rows=10))
    scheduler.check(True, 4, None, 0.0)
    with pytest.raises(OverloadedError, match="6 rows wait, 5 more exceed 10"):
        scheduler.check(True, 5, None, 0.0)
    with pytest.raises(DeadlineError):
        scheduler.check(True, 1, 1.0, 1.0)
    assert (scheduler.waiting, scheduler.counters.rejected) == (6, 1)


def test_a_lane_that_is_behind_does_not_refuse_for_another() -> None:
    """Greedy rows come out one a tenth of a second, and 400 wait; nobody searches."""
    scheduler = scheduler_with(make_call(rows=500))
    running = list(plan(scheduler, slots=1).join)
    for index in range(1, 100):
        [job] = running
        job.row.started, job.row.ended = index / 10 - 0.1, index / 10
        scheduler.served(job.row)
        running = list(plan(scheduler, slots=1, now=index / 10).join)
    for _ in range(400):
        scheduler.submit(make_call(), 10.0)
    with pytest.raises(OverloadedError, match=r"the deadline cannot be met: it is in 35.00 s, but a wait of 40.\d\d s"):
        scheduler.submit(make_call(deadline=45.0), 10.0)
    with pytest.raises(OverloadedError):
        scheduler.check(True, 1, 45.0, 10.0)
    scheduler.submit(make_call(deadline=11.0), 10.0)  # it goes before the patient ones
    scheduler.submit(call_of(Row((5, 6, 2), 10, SearchParams(beam_size=4))), 10.0)
    scheduler.check(False, 1, 45.0, 10.0)
