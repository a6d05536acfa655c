"""The greedy lane of a device: rows decode as they do alone, whatever joins, leaves and moves while steps are in flight."""

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.cuda.greedy_lane import DeviceGreedyLane
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions
from triptych_serving.errors import EngineError
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.scheduling.request import Finish, Row

from ...calls import call_of, row_of, watched
from ...device_graphs import END, INDIGESTIBLE, POISON, SOURCES, TARGETS, VOCABULARY, decode, make_lane
from ...lagging_memory import LaggingMemory, PromptMemory

GPU = Device("cuda")
COUNT = 20  # slots
LONGEST = TARGETS - 1  # tokens of a translation


def new_row(source: Sequence[int], max_tokens: int = LONGEST, prefix: tuple[int, ...] = ()) -> Row:
    return row_of(source, max_tokens, prefix=prefix)


def expected(row: Row) -> list[int]:
    return decode(row.source, row.max_tokens, row.prefix)


def finish(lane: DeviceGreedyLane) -> list[Row]:
    """Step until all rows have ended."""
    ended = []
    while lane.rows:
        ended += lane.step()
    return ended


def endless(length: int, which: int = 0) -> tuple[int, ...]:
    """Return a source of so many tokens whose translation ends at its limit."""
    made = ((first, second, *range(30, 30 + length - 3), END) for first in range(20, 90) for second in range(20, 90))
    return next(islice((source for source in made if len(decode(source, LONGEST)) == LONGEST), which, None))


ids = st.integers(15, VOCABULARY - 1)
sources = st.lists(ids, max_size=SOURCES - 1).map(lambda tokens: (*tokens, END))
specs = st.tuples(sources, st.integers(1, LONGEST), st.lists(ids, max_size=5).map(tuple))
joins = st.tuples(st.just("join"), st.lists(specs, min_size=1, max_size=6))
leaves = st.tuples(st.just("leave"), st.lists(st.integers(0, COUNT), min_size=1, max_size=4))
again = st.tuples(st.just("again"), st.integers(0, COUNT))
steps = st.tuples(st.just("step"), st.integers(1, 6))


@pytest.mark.parametrize(("kind", "device"), [(LaggingMemory, GPU), (PromptMemory, CPU)])
@settings(max_examples=16)
@given(events=st.lists(joins | leaves | again | steps, max_size=30))
def test_rows_that_join_and_leave_do_not_change_others(
    manifest: TranslationManifest, kind: type[LaggingMemory], device: Device, events: list[tuple[str, Any]]
) -> None:
    lane, _ = make_lane(manifest, kind(device), COUNT)
    lane.warm_up()
    ended: list[Row] = []
    for event, value in events:
        if event == "join":
            lane.join([new_row(*each) for each in value[: lane.free]])
        elif event == "leave":
            gone = {index % len(lane.rows) for index in value} if lane.rows else set()
            lane.leave([lane.rows[index] for index in gone])
        elif event == "again" and lane.rows:  # as a retried row does
            back = lane.rows[value % len(lane.rows)]
            lane.leave([back])
            back.tokens.clear()
            lane.join([back])
        elif event == "step":
            for _ in range(value):
                ended += lane.step() if lane.rows else []
        assert len(lane.rows) + lane.free == COUNT
    ended += finish(lane)
    for row in ended:
        assert row.tokens == expected(row)
        assert row.finish is (Finish.LENGTH if len(row.tokens) == row.max_tokens else Finish.STOP)
    assert lane.free == COUNT


def test_two_steps_are_in_flight(manifest: TranslationManifest) -> None:
    memory = LaggingMemory(CPU)
    lane, step = make_lane(manifest, memory, 4)
    lane.join([new_row(endless(5))])
    lane.step()
    assert len(step.rows) == 1  # the one that was waited for; the next one is enqueued
    for _ in range(3):
        lane.step()
    assert len(step.rows) == 4
    memory.wait()
    assert len(step.rows) == 5


def test_updated_rows_are_those_with_a_first_token_and_streams(manifest: TranslationManifest) -> None:
    lane, _ = make_lane(manifest, LaggingMemory(CPU), 4)
    first, second, streamed = new_row(endless(5)), new_row(endless(6)), new_row(endless(7))
    streamed.call.streams = True
    lane.join([first])
    lane.step()
    assert list(lane.updated_rows) == [first]
    lane.join([second, streamed])
    lane.step()  # was enqueued before the others joined
    assert list(lane.updated_rows) == []
    lane.step()
    assert sorted(map(id, lane.updated_rows)) == sorted(map(id, [second, streamed]))
    assert len(streamed.tokens) == 1
    lane.step()
    assert list(lane.updated_rows) == [streamed]
    assert streamed.tokens == expected(streamed)[:2]


def test_a_step_runs_the_smallest_bucket_with_all_rows(manifest: TranslationManifest) -> None:
    memory = LaggingMemory(CPU)
    lane, step = make_lane(manifest, memory, 40)
    rows = [new_row(endless(4 + index % 8), 23 if index in (0, 30) else 5) for index in range(31)]
    lane.join(rows)
    finish(lane)
    memory.wait()
    assert [step.rows.count(rows) for rows in (1, 8, 16, 32, 40)] == [0, 23 - 5, 0, 5 + 1, 0]
    assert [each.tokens for each in rows] == [expected(each) for each in rows]


def test_rows_move_down_once_half_the_bucket_is_enough(manifest: TranslationManifest) -> None:
    memory = LaggingMemory(CPU)
    lane, step = make_lane(manifest, memory, 40)
    rows = [new_row(endless(5, index)) for index in range(20)]
    lane.join(rows)
    lane.step()
    lane.leave(rows[:3])  # 17 rows, up to slot 19: a bucket of 32 either way
    lane.step()
    assert {lane._by_row[id(each)].slot for each in rows[3:]} == set(range(3, 20))
    lane.leave(rows[3:8])  # 12 rows: a bucket of 16 is enough
    lane.step()
    moved = [lane._by_row[id(each)].slot for each in rows[8:]]
    assert max(moved) < 16
    assert moved[:8] == list(range(8, 16))
    memory.wait()
    assert step.rows[-1] == 16
    finish(lane)
    assert [each.tokens for each in rows[8:]] == [expected(each) for each in rows[8:]]


def test_new_rows_take_the_lowest_slots(manifest: TranslationManifest) -> None:
    lane, _ = make_lane(manifest, LaggingMemory(CPU), 8)
    rows = [new_row(endless(5)) for _ in range(6)]
    lane.join(rows)
    lane.leave([rows[4], rows[1]])
    new = [new_row(endless(7)), new_row(endless(6)), new_row(endless(5))]
    lane.join(new)
    assert sorted(lane._by_row[id(each)].slot for each in new) == [1, 4, 6]


@pytest.mark.parametrize("prefix", [(50,), (50, 51, 52), tuple(range(40, 40 + LONGEST)), (50, END, 51)])
def test_a_prefix_is_forced_on_its_own_row_only(manifest: TranslationManifest, prefix: tuple[int, ...]) -> None:
    lane, _ = make_lane(manifest, LaggingMemory(CPU), 4)
    forced, free = new_row(endless(5), LONGEST, prefix), new_row(endless(6))
    lane.join([forced, free])
    finish(lane)
    if END in prefix:
        assert (forced.tokens, forced.finish) == ([50], Finish.STOP)
    else:
        assert forced.tokens == expected(forced)
        assert tuple(forced.tokens[: len(prefix)]) == prefix
    assert free.tokens == expected(free)


def test_sources_are_encoded_in_few_shapes(manifest: TranslationManifest) -> None:
    memory = LaggingMemory(CPU)
    lane, _ = make_lane(manifest, memory, 64)
    rows = [new_row([20 + index % 9] * (1 + index % 12) + [END]) for index in range(50)]
    lane.join(rows)
    memory.wait()
    encoder = lane._slots._cache._prefill._encoder
    shapes = encoder.shapes  # type: ignore[attr-defined]
    assert {width for _, width in shapes} == {16}
    assert all(count & (count - 1) == 0 for count, _ in shapes)
    finish(lane)
    assert [each.tokens for each in rows] == [expected(each) for each in rows]


def test_warm_up_captures_every_bucket_and_leaves_nothing_behind(manifest: TranslationManifest) -> None:
    """The first run of a captured graph steps three times; what that wrote is cleared."""
    memory = LaggingMemory(GPU)
    lane, step = make_lane(manifest, memory, 20)
    lane.warm_up()
    assert sorted(set(step.rows)) == [1, 8, 16, 20]
    assert len(step.captured) == 4
    rows = [new_row(endless(4 + index % 5)) for index in range(20)]
    lane.join(rows)
    finish(lane)
    assert [each.tokens for each in rows] == [expected(each) for each in rows]
    assert len(step.captured) == 4  # nothing was captured later


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_a_lane_works_after_a_failed_step(manifest: TranslationManifest, device: Device) -> None:
    lane, _ = make_lane(manifest, LaggingMemory(device), 4)
    lane.warm_up()
    healthy = new_row(endless(5))
    lane.join([new_row((POISON, 40, END)), healthy])
    with pytest.raises(RuntimeError, match="cannot step"):
        lane.step()
    lane.leave(tuple(lane.rows))
    assert lane.free == 4
    assert not lane.rows
    released = threading.Event()

    def capture() -> None:
        with CUDA_GRAPH_LOCK.capturing():
            released.set()

    threading.Thread(target=capture).start()
    assert released.wait(10), "the failed step holds the graph lock"
    healthy.tokens.clear()
    lane.join([healthy])
    finish(lane)
    assert healthy.tokens == expected(healthy)


@pytest.mark.parametrize("poison", [POISON, INDIGESTIBLE])
@pytest.mark.parametrize("kind", [LaggingMemory, PromptMemory])
def test_an_engine_on_two_devices_recovers_from_a_failure_on_one(
    manifest: TranslationManifest, kind: type[LaggingMemory], poison: int
) -> None:
    """All other rows decode on either device as usual."""
    devices = Device("cuda", 0), Device("cuda", 1)
    memories = [kind(device) for device in devices]
    engine = DecodeEngine(
        lambda lane, worker: make_lane(manifest, memories[worker], 8)[0], EngineOptions(9, 8, devices=devices)
    )
    engine.start()
    try:
        calls = [call_of(Row(endless(3 + index % 12), 4 + index % 19)) for index in range(60)]
        poisoned = call_of(Row((poison, 40, END), 5))
        for call in (*calls[:30], poisoned, *calls[30:]):
            engine.submit(call)
        for call in (*calls, poisoned):
            call.wait()
        assert isinstance(poisoned.error, EngineError)
        assert [call.error for call in calls] == [None] * 60
        assert [call.rows[0].tokens for call in calls] == [expected(call.rows[0]) for call in calls]
    finally:
        engine.close(drain=False)
    assert all(memory.asked for memory in memories)
    assert threading.active_count() < 50


def test_other_threads_can_read_the_rows(manifest: TranslationManifest) -> None:
    lane, _ = make_lane(manifest, PromptMemory(CPU), 256)
    rows = [new_row(endless(5)) for _ in range(256)]
    lane.join(rows)
    with watched(lambda: len(list(lane.rows)) in {255, 256}):
        for _ in range(300):
            rows.append(rows.pop(0))
            lane.leave([rows[-1]])
            lane.join([rows[-1]])
            assert list(map(id, lane.rows)) == list(map(id, rows))


def test_a_stream_never_shows_the_end_token(manifest: TranslationManifest) -> None:
    class Shown(list[int]):
        def extend(self, tokens: Any) -> None:
            super().extend(tokens)
            assert END not in self

    lane, _ = make_lane(manifest, LaggingMemory(CPU), 4)
    stopping = new_row(next((first, END) for first in range(20, 90) if 3 < len(decode((first, END), LONGEST)) < LONGEST))
    stopping.call.streams = True
    stopping.tokens = Shown()
    lane.join([stopping])
    finish(lane)
    assert (stopping.tokens, stopping.finish) == (expected(stopping), Finish.STOP)


def test_the_size_of_caches_and_slots(manifest: TranslationManifest) -> None:
    lane, _ = make_lane(manifest, LaggingMemory(CPU), 5)
    layers, width = 2, 4
    caches = 2 * 2 * layers * 5 * width * (TARGETS + SOURCES)
    assert lane.bytes == caches + 5 * (8 + 4 + 8 + 8)


def test_captured_graphs_have_unique_numbers(manifest: TranslationManifest) -> None:
    lanes = [make_lane(manifest, LaggingMemory(GPU), 9)[0] for _ in range(2)]
    for lane in lanes:
        lane.warm_up()
    assert len({bucket.graph for lane in lanes for bucket in lane._slots._bound.values()}) == 2 * 3
