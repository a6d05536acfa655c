"""One-shot batches, with the time as a plain number."""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_serving.scheduling.batch_scheduler import TURN_TOKENS, BatchLimits, BatchScheduler
from triptych_serving.scheduling.request import Call, Item

from ..calls import item_call

NO_FREE_PADDING = BatchLimits(padding=0.125, saturating_tokens=0)


def scheduler_with(*calls: Call[Item], limits: BatchLimits | None = None) -> BatchScheduler:
    scheduler = BatchScheduler(limits or BatchLimits())
    for call in calls:
        scheduler.submit(call, 0.0)
    return scheduler


def plan(scheduler: BatchScheduler, idle_runs: int = 1) -> tuple[Item, ...]:
    return scheduler.plan(idle_runs, 0.0)


def plans(scheduler: BatchScheduler) -> Iterator[tuple[Item, ...]]:
    """Yield batches until the queue is empty."""
    while batch := plan(scheduler):
        yield batch


def sizes(batch: Sequence[Item]) -> list[int]:
    return sorted(item.size for item in batch)


def calls_of(batch: Sequence[Item]) -> list[Call[Item]]:
    return [item.call for item in batch]


@pytest.mark.parametrize(
    ("item_sizes", "limits", "batches"),
    [
        pytest.param([100] * 25, BatchLimits(), [[100] * 10, [100] * 10, [100] * 5], id="padded tokens"),
        pytest.param([2] * 150, BatchLimits(), [[2] * 64, [2] * 64, [2] * 22], id="rows"),
        pytest.param([3_000, 2_900, 3_000], BatchLimits(), [[3_000], [2_900], [3_000]], id="items over the budget"),
        pytest.param([10, 100] * 10, NO_FREE_PADDING, [[10] * 10, [100] * 10], id="similar sizes"),
        pytest.param([10, 60, 100], BatchLimits(saturating_tokens=256), [[10, 60], [100]], id="free padding"),
        pytest.param([80, 70, 60], NO_FREE_PADDING, [[70, 80], [60]], id="padding above the limit"),
    ],
)
def test_batches_keep_the_limits(item_sizes: list[int], limits: BatchLimits, batches: list[list[int]]) -> None:
    assert [sizes(batch) for batch in plans(scheduler_with(item_call(*item_sizes), limits=limits))] == batches


@pytest.mark.parametrize(("other", "first_two"), [(46, [46, 50]), (44, [50, 55])])
def test_the_neighbour_that_wastes_less_is_taken_first(other: int, first_two: list[int]) -> None:
    scheduler = scheduler_with(item_call(50, other, 55), limits=BatchLimits(padding=0.125))
    assert sizes(plan(scheduler)[:2]) == first_two


@pytest.mark.parametrize(
    ("item_sizes", "idle_runs", "batches"),
    [
        pytest.param([10] * 8, (4, 3, 2, 1), [[10] * 2] * 4, id="shared"),
        pytest.param([10, 10], (4,), [[10]], id="single item"),
        pytest.param([10, 100], (2, 1), [[10], [100]], id="longer item"),
        pytest.param([5, 6], (1,), [[5, 6]], id="padding does not count"),
        pytest.param([100] * 40, (2,), [[100] * 10], id="long queue"),
    ],
)
def test_idle_runs_share_a_short_queue(item_sizes: list[int], idle_runs: tuple[int, ...], batches: list[list[int]]) -> None:
    scheduler = scheduler_with(item_call(*item_sizes))
    assert [sizes(plan(scheduler, idle)) for idle in idle_runs] == batches


def test_lone_items_go_before_the_equal_items_of_a_big_call() -> None:
    lone = [item_call(20) for _ in range(50)]
    scheduler = scheduler_with(item_call(*[20] * 1_000), *lone)
    assert set(lone) <= set(calls_of(plan(scheduler)))


def test_items_of_a_call_keep_their_order_among_equals() -> None:
    call = item_call(*[7] * 5)
    assert list(plan(scheduler_with(call))) == list(call.rows)


SIZES = st.integers(1, 300)


@given(
    st.lists(st.lists(SIZES, min_size=1, max_size=30), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 600),
    st.integers(0, 200),
)
def test_every_batch_keeps_the_rules(calls: list[list[int]], at_once: int, rows: int, tokens: int, saturating: int) -> None:
    limits = BatchLimits(batch_rows=rows, batch_tokens=tokens, saturating_tokens=saturating)
    scheduler = BatchScheduler(limits)
    waiting: dict[Item, int] = {}
    virtual_time, turn = 0, max(TURN_TOKENS, saturating)
    queued = [item_call(*some) for some in calls]
    while queued or scheduler.waiting:
        for call in queued[:at_once]:
            scheduler.submit(call, 0.0)
            times = [math.ceil(item.size / TURN_TOKENS) * TURN_TOKENS for item in call.rows]
            for item, taken in zip(call.rows, accumulate(times), strict=True):
                waiting[item] = virtual_time + min(math.ceil(taken / turn) * turn, sum(times))
        del queued[:at_once]
        batch = plan(scheduler)
        virtual_time = min(waiting.values())
        assert waiting[batch[0]] == virtual_time, "the first in fair order is not in the batch"
        for item in batch:
            del waiting[item]
        check_batch([item.size for item in batch], limits)
        shortest, *_, longest = *sorted(item.size for item in batch), max(item.size for item in batch)
        assert not [item for item in waiting if shortest < item.size < longest], "the batch has a gap"
        assert scheduler.waiting == len(waiting)
    assert not waiting


def check_batch(sizes: list[int], limits: BatchLimits) -> None:
    padded = len(sizes) * max(sizes)
    assert len(sizes) <= limits.batch_rows
    assert len(sizes) == 1 or padded <= limits.batch_tokens
    assert len(sizes) == 1 or padded <= limits.saturating_tokens or padded - sum(sizes) < padded / 8


@given(st.integers(1, 400), st.lists(st.lists(SIZES, min_size=1, max_size=6), max_size=10), st.lists(SIZES, min_size=1))
def test_no_call_starves(size: int, before: list[list[int]], intruders: list[int]) -> None:
    """New calls arrive after every batch, for ever, and each batch has room for one item."""
    scheduler = scheduler_with(*[item_call(*some) for some in before], limits=BatchLimits(batch_rows=1))
    patient = item_call(size)
    scheduler.submit(patient, 0.0)
    bound = size * scheduler.waiting  # in every token of virtual time each waiting call is served once at most
    for turn in range(bound):
        if patient in calls_of(plan(scheduler)):
            return
        scheduler.submit(item_call(intruders[turn % len(intruders)]), 0.0)
    pytest.fail(f"not served within {bound} batches")


@pytest.mark.parametrize("limits", [BatchLimits(saturating_tokens=256), BatchLimits(batch_rows=2)], ids=["tokens", "rows"])
def test_a_busy_engine_leaves_a_small_batch_open(limits: BatchLimits) -> None:
    scheduler = scheduler_with(item_call(10), limits=limits)
    assert scheduler.ready(idle=True)
    assert not scheduler.ready(idle=False)
    scheduler.submit(item_call(246), 0.0)
    assert scheduler.ready(idle=False)
    list(plans(scheduler))
    assert not scheduler.ready(idle=True)


def test_a_busy_engine_plans_a_retry_at_once() -> None:
    scheduler = scheduler_with(item_call(5))
    scheduler.retry(plan(scheduler))
    assert scheduler.ready(idle=False)
