"""The batch former, with the time as a plain number."""

import gc
import weakref
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.errors import CancelledError, DeadlineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.scheduling.admission import SWEEP_SECONDS
from triptych_serving.scheduling.batch_scheduler import STALE_TICKETS, BatchLimits, BatchScheduler, Ticket
from triptych_serving.scheduling.request import Call, Item

from ..calls import RecordedCall, item_call

LATER = 2 * SWEEP_SECONDS
NO_FREE_PADDING = BatchLimits(padding=0.125, saturating_tokens=0)


def former_with(*calls: Call[Item], limits: BatchLimits | None = None, now: float = 0.0) -> BatchScheduler:
    former = BatchScheduler(limits or BatchLimits())
    for call in calls:
        former.submit(call, now)
    return former


def plan(former: BatchScheduler, idle_runs: int = 1, now: float = 0.0) -> tuple[Ticket, ...]:
    return former.plan(idle_runs, now)


def plans(former: BatchScheduler) -> Iterator[tuple[Ticket, ...]]:
    """Batches until the queue is empty."""
    while batch := plan(former):
        yield batch


def sizes(batch: Sequence[Ticket]) -> list[int]:
    return sorted(ticket.item.size for ticket in batch)


def who(batch: Sequence[Ticket]) -> list[Call[Item]]:
    return [ticket.call for ticket in batch]


def cancelled(call: RecordedCall) -> RecordedCall:
    call.fail(CancelledError("gone"))
    return call


def test_padded_tokens_stay_within_the_budget() -> None:
    former = former_with(item_call(*[100] * 25))
    assert [len(batch) for batch in plans(former)] == [10, 10, 5]


def test_rows_stay_within_their_limit() -> None:
    former = former_with(item_call(*[2] * 150))
    assert [len(batch) for batch in plans(former)] == [64, 64, 22]


def test_an_item_over_the_budget_runs_by_itself() -> None:
    former = former_with(item_call(3_000, 2_900, 3_000))
    assert [sizes(batch) for batch in plans(former)] == [[3_000], [2_900], [3_000]]


def test_a_batch_is_made_of_like_sizes() -> None:
    former = former_with(item_call(*[10, 100] * 10), limits=NO_FREE_PADDING)
    assert [sizes(batch) for batch in plans(former)] == [[10] * 10, [100] * 10]


def test_padding_is_free_while_a_batch_is_small() -> None:
    former = former_with(item_call(10, 60, 100), limits=BatchLimits(saturating_tokens=256))
    assert [sizes(batch) for batch in plans(former)] == [[10, 60], [100]]


def test_the_neighbour_that_wastes_less_is_taken_first() -> None:
    shorter, longer = (former_with(item_call(50, other, 55), limits=BatchLimits(padding=0.125)) for other in (46, 44))
    assert [sizes(plan(former)[:2]) for former in (shorter, longer)] == [[46, 50], [50, 55]]


def test_padding_above_the_limit_ends_a_batch() -> None:
    former = former_with(item_call(80, 70, 60), limits=NO_FREE_PADDING)
    assert [sizes(batch) for batch in plans(former)] == [[70, 80], [60]]


def test_idle_runs_share_a_short_queue() -> None:
    former = former_with(item_call(*[10] * 8))
    assert [len(plan(former, idle_runs=idle)) for idle in (4, 3, 2, 1)] == [2, 2, 2, 2]


def test_a_share_may_be_a_single_item() -> None:
    assert len(plan(former_with(item_call(10, 10)), idle_runs=4)) == 1


def test_a_share_is_not_exceeded_for_the_sake_of_a_longer_item() -> None:
    former = former_with(item_call(10, 100))
    assert [sizes(plan(former, idle_runs=idle)) for idle in (2, 1)] == [[10], [100]]


def test_padding_does_not_count_against_a_share() -> None:
    assert sizes(plan(former_with(item_call(5, 6)), idle_runs=1)) == [5, 6]


def test_a_long_queue_fills_the_batch_whoever_is_idle() -> None:
    assert len(plan(former_with(item_call(*[100] * 40)), idle_runs=2)) == 10


def test_a_lone_item_passes_a_big_call() -> None:
    big, lone = item_call(*[20] * 1_000), item_call(90)
    former = former_with(big)
    plan(former)
    former.submit(lone, 0.0)
    assert lone in [who(batch)[0] for batch, _ in zip(plans(former), range(3), strict=False)]


def test_lone_items_go_before_the_like_items_of_a_big_call() -> None:
    lone = [item_call(20) for _ in range(50)]
    former = former_with(item_call(*[20] * 1_000), *lone)
    assert set(lone) <= set(who(plan(former)))


def test_two_big_calls_advance_together() -> None:
    first, second = item_call(*[20] * 500), item_call(*[20] * 500)
    former = former_with(first, second)
    served = [call for _ in range(5) for call in who(plan(former))]
    assert abs(served.count(first) - served.count(second)) <= 5


def test_items_of_a_call_keep_their_order_among_equals() -> None:
    call = item_call(*[7] * 5)
    assert [ticket.item for ticket in plan(former_with(call))] == list(call.rows)


SIZES = st.integers(1, 300)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(SIZES, min_size=1, max_size=30), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 600),
    st.integers(0, 200),
)
def test_every_batch_keeps_the_rules(calls: list[list[int]], at_once: int, rows: int, tokens: int, saturating: int) -> None:
    limits = BatchLimits(batch_rows=rows, batch_tokens=tokens, saturating_tokens=saturating)
    former = BatchScheduler(limits)
    waiting: dict[Item, int] = {}
    virtual_time = 0
    queued = [item_call(*some) for some in calls]
    while queued or former.waiting:
        for call in queued[:at_once]:
            former.submit(call, 0.0)
            tag = virtual_time
            for item in call.rows:
                tag += item.size
                waiting[item] = tag
        del queued[:at_once]
        batch = [ticket.item for ticket in plan(former)]
        virtual_time = min(waiting.values())
        assert waiting[batch[0]] == virtual_time, "the first in fair order is not in the batch"
        for item in batch:
            del waiting[item]
        check_batch([item.size for item in batch], limits)
        shortest, *_, longest = *sorted(item.size for item in batch), max(item.size for item in batch)
        assert not [item for item in waiting if shortest < item.size < longest], "the batch has a gap"
        assert former.waiting == len(waiting)
    assert not waiting


def check_batch(sizes: list[int], limits: BatchLimits) -> None:
    padded = len(sizes) * max(sizes)
    assert len(sizes) <= limits.batch_rows
    assert len(sizes) == 1 or padded <= limits.batch_tokens
    assert len(sizes) == 1 or padded <= limits.saturating_tokens or padded - sum(sizes) < padded / 8


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 400), st.lists(st.lists(SIZES, min_size=1, max_size=6), max_size=10), st.lists(SIZES, min_size=1))
def test_nobody_starves(size: int, before: list[list[int]], intruders: list[int]) -> None:
    """New calls arrive after every batch, for ever, and each batch has room for one item."""
    former = former_with(*[item_call(*some) for some in before], limits=BatchLimits(batch_rows=1))
    patient = item_call(size)
    former.submit(patient, 0.0)
    bound = size * former.waiting  # in every token of virtual time each of those that waited is served once at most
    for turn in range(bound):
        if patient in who(plan(former)):
            return
        former.submit(item_call(intruders[turn % len(intruders)]), 0.0)
    pytest.fail(f"not served within {bound} batches")


@pytest.mark.parametrize(("limits", "message"), [({"waiting_rows": 10}, "6 rows wait, 5 more exceed 10")])
def test_too_many_items_are_refused_whole(limits: dict[str, int], message: str) -> None:
    former = former_with(item_call(*[5] * 6), limits=BatchLimits(**limits))
    with pytest.raises(OverloadedError, match=message) as refused:
        former.submit(item_call(*[5] * 5), 0.0)
    assert refused.value.retry_after_seconds > 0
    assert former.waiting == 6
    former.submit(item_call(*[5] * 4), 0.0)


def test_too_many_tokens_are_refused() -> None:
    former = former_with(item_call(40, 40), limits=BatchLimits(waiting_tokens=100))
    with pytest.raises(OverloadedError, match="80 tokens wait, 30 more exceed 100"):
        former.submit(item_call(30), 0.0)


@pytest.mark.parametrize("call_sizes", [[1] * 11, [101]])
def test_a_call_larger_than_the_whole_queue_is_not_told_to_come_back(call_sizes: list[int]) -> None:
    former = former_with(limits=BatchLimits(waiting_rows=10, waiting_tokens=100))
    with pytest.raises(InvalidInputError, match=r"contents: 1\d+ (rows|tokens) in one request, at most 10+ can wait"):
        former.submit(item_call(*call_sizes), 0.0)


def test_items_that_run_make_room_in_the_queue() -> None:
    former = former_with(item_call(*[3] * 10), limits=BatchLimits(waiting_rows=10, waiting_tokens=30))
    plan(former)
    former.submit(item_call(*[3] * 10), 0.0)
    assert former.waiting == 10


def test_a_call_whose_deadline_has_passed_is_refused() -> None:
    with pytest.raises(DeadlineError):
        former_with(item_call(5, deadline=1.0), now=1.0)


def test_a_waiting_call_ends_at_its_deadline() -> None:
    hasty, patient = item_call(5, 6, 7, deadline=1.0), item_call(6, deadline=9.0)
    former = former_with(hasty, patient)
    assert who(plan(former, now=1.0)) == [patient]
    assert isinstance(hasty.error, DeadlineError)
    assert hasty.listener.ends == 1
    assert former.waiting == 0


@pytest.mark.parametrize("gone_first", [True, False])
@pytest.mark.parametrize("now", [LATER, SWEEP_SECONDS / 2])
def test_a_cancelled_call_never_runs(now: float, gone_first: bool) -> None:
    """Whether or not somebody looks through the whole queue before the batch is planned."""
    gone, other = item_call(5, 6, 5, 6), item_call(5, 6)
    former = former_with(item_call(5), *([gone, other] if gone_first else [other, gone]))
    plan(former, idle_runs=9)  # looks through the queue, and not again before LATER
    cancelled(gone)
    assert who(plan(former, now=now)) == [other, other]
    assert plan(former, now=now) == ()
    assert former.waiting == 0


def test_a_cancelled_call_makes_room_even_if_its_turn_never_comes() -> None:
    call = item_call(*[900] * 10)
    former = former_with(call, item_call(*[4] * 2), limits=BatchLimits(waiting_rows=12))
    cancelled(call)
    assert len(plan(former, now=LATER)) == 2
    former.submit(item_call(*[4] * 12), LATER)
    assert former.waiting == 12


def test_cancelled_calls_are_forgotten() -> None:
    former = former_with(item_call(*[4] * 200))
    calls = [item_call(700 + index % 50) for index in range(1_000)]
    for call in calls:
        former.submit(call, 0.0)
        cancelled(call)
    remembered = [weakref.ref(call) for call in calls]
    del call, calls
    assert sizes(plan(former, now=LATER)) == [4] * 64
    gc.collect()
    assert sum(ref() is not None for ref in remembered) <= 200 + STALE_TICKETS
    list(plans(former))
    gc.collect()
    assert sum(ref() is not None for ref in remembered) <= STALE_TICKETS


def test_a_retried_item_runs_alone_and_first() -> None:
    first, second, waiting = item_call(5), item_call(5), item_call(5)
    former = former_with(first, second)
    failed = plan(former)
    failed[0].item.result = "half done"
    former.submit(waiting, 0.0)
    former.retry(failed)
    assert former.waiting == 3
    assert [who(batch) for batch in plans(former)] == [[first], [second], [waiting]]
    assert [call.rows[0].alone for call in (first, second, waiting)] == [True, True, False]
    assert first.rows[0].result is None


@pytest.mark.parametrize("now", [LATER, SWEEP_SECONDS / 2])
def test_a_cancelled_retry_never_runs(now: float) -> None:
    call, waiting = item_call(5), item_call(5)
    former = former_with(call)
    former.retry(plan(former))
    former.submit(waiting, 0.0)
    cancelled(call)
    assert who(plan(former, now=now)) == [waiting]
    assert former.waiting == 0


def test_a_busy_engine_leaves_a_small_batch_open() -> None:
    former = former_with(item_call(100), limits=BatchLimits(saturating_tokens=256))
    assert former.ready(idle=True)
    assert not former.ready(idle=False)
    former.submit(item_call(156), 0.0)
    assert former.ready(idle=False)
    list(plans(former))
    assert not former.ready(idle=True)


def test_a_busy_engine_plans_a_batch_that_has_all_its_rows() -> None:
    former = former_with(item_call(*[2] * 7), limits=BatchLimits(batch_rows=8))
    assert not former.ready(idle=False)
    former.submit(item_call(2), 0.0)
    assert former.ready(idle=False)


def test_a_retry_is_planned_at_once() -> None:
    former = former_with(item_call(5))
    former.retry(plan(former))
    assert former.ready(idle=False)


def test_a_closed_former_refuses_what_comes_and_serves_what_waits() -> None:
    waiting = item_call(5)
    former = former_with(waiting)
    former.close()
    with pytest.raises(UnavailableError):
        former.submit(item_call(5), 0.0)
    assert who(plan(former)) == [waiting]


def test_draining_empties_the_queue() -> None:
    retried, waiting, partly = item_call(5), item_call(6), item_call(7, 2_000)
    former = former_with(retried)
    former.retry(plan(former))
    former.submit(waiting, 0.0)
    former.submit(partly, 0.0)
    assert former.drain() == [waiting, partly, retried]
    assert former.waiting == 0
    assert plan(former, now=LATER) == ()
    former.submit(waiting, 0.0)
    assert who(plan(former)) == [waiting]
