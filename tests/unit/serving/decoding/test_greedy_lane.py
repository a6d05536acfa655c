"""The lane, with the toy model's graphs."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.lane import group_by_length
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.request import Finish, Row
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ....fixtures.toy import BUNDLE, PAIRS, SOURCES, TARGETS
from ..calls import row_of
from ..conftest import MakeLane

VOCABULARY = 300
END = 2


def new_row(source: Sequence[int], max_tokens: int = 63) -> Row:
    return row_of(source, max_tokens)


def run(lane: GreedyLane, rows: Sequence[Row]) -> None:
    """Decode all to the end; at most as many as there are slots."""
    lane.join(rows)
    while lane.rows:
        lane.step()


def host_caches(lane: GreedyLane) -> HostKVCache:
    caches = lane._slots.cache
    assert isinstance(caches, HostKVCache)
    return caches


def assert_dense(lane: GreedyLane) -> None:
    """Slot i belongs to row i, and knows how far its row is."""
    for slot, running in enumerate(lane.rows):
        row = running
        assert row.finish is None
        assert lane._slots.last[slot] == len(row.source) - 1
        assert lane._slots.positions[slot] == len(row.tokens)
        assert not row.tokens or lane._slots.tokens[slot] == row.tokens[-1]
    assert len(lane.rows) + lane.free == lane._slots.count
    assert lane._slots.used == len(lane.rows)


def test_the_model_knows_its_sentences(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    rows = [new_row(source) for source in codec.encode(SOURCES)]
    lane = make_lane(64)
    for first in range(0, len(rows), 64):
        run(lane, rows[first : first + 64])
    assert codec.decode([row.tokens for row in rows]) == TARGETS
    assert {row.finish for row in rows} == {Finish.STOP}


@cache
def storm_lane() -> GreedyLane:
    """One lane for all storms: what earlier rows left behind is part of the test."""
    bundle = open_bundle(BUNDLE)
    graphs = bundle.manifest.precisions["fp32"]
    return GreedyLane(Session(bundle.path(graphs.encoder)), Session(bundle.path(graphs.step)), bundle.manifest, 6)


@cache
def tokens_alone(source: tuple[int, ...], max_tokens: int) -> list[int]:
    alone = new_row(source, max_tokens)
    run(storm_lane(), [alone])
    return alone.tokens


sources = st.lists(st.integers(3, VOCABULARY - 1), max_size=40).map(lambda ids: (*ids, END))
joins = st.tuples(st.just("join"), st.tuples(sources, st.integers(1, 63)))
leaves = st.tuples(st.just("leave"), st.integers(0, 5))
steps = st.tuples(st.just("step"), st.integers(1, 8))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(joins | leaves | steps, max_size=30))
def test_a_row_does_not_care_who_joins_and_leaves(events: list[tuple[str, Any]]) -> None:
    lane = storm_lane()
    ended: list[Row] = []
    lane.leave(tuple(lane.rows))
    for kind, value in events:
        if kind == "join" and lane.free:
            source, max_tokens = value
            lane.join([new_row(source, max_tokens)])
        elif kind == "leave" and lane.rows:
            lane.leave([lane.rows[value % len(lane.rows)]])
        elif kind == "step":
            for _ in range(value if lane.rows else 0):
                ended += lane.step() if lane.rows else []
        assert_dense(lane)
    while lane.rows:
        ended += lane.step()
    for row in ended:
        assert row.tokens == tokens_alone(tuple(row.source), row.max_tokens)


def test_rows_that_leave_in_the_middle_do_not_disturb_the_others(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(8)
    rows = [new_row(source) for source in codec.encode(SOURCES[:8])]
    lane.join(rows)
    for gone in ([rows[0], rows[7]], [rows[3]], []):
        lane.step()
        lane.leave(gone)
        assert_dense(lane)
    while lane.rows:
        lane.step()
    stayed = [1, 2, 4, 5, 6]
    assert codec.decode([rows[index].tokens for index in stayed]) == [TARGETS[index] for index in stayed]


def test_a_row_moves_with_all_its_memory(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(3)
    lane.join([new_row(source) for source in codec.encode(SOURCES[:3])])
    for _ in range(4):
        lane.step()
    source_length = int(lane._slots.last[2]) + 1
    cache = [buffer[2, :, :4].copy() for buffer in host_caches(lane).cache]
    memory = [buffer[2, :, :source_length].copy() for buffer in host_caches(lane).memory]
    first, second, third = lane.rows
    lane.leave([first])
    assert lane.rows == [third, second]
    for moved, buffer in zip(cache, host_caches(lane).cache, strict=True):
        assert np.array_equal(buffer[0, :, :4], moved)
    for moved, buffer in zip(memory, host_caches(lane).memory, strict=True):
        assert np.array_equal(buffer[0, :, :source_length], moved)


def test_what_lies_in_unused_memory_is_never_read(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(4)
    for buffer in (*host_caches(lane).cache, *host_caches(lane).memory):
        buffer.fill(np.nan)
    rows = [new_row(source) for source in codec.encode(SOURCES[:4])]
    run(lane, rows)
    assert codec.decode([row.tokens for row in rows]) == TARGETS[:4]


def test_nan_of_a_poisoned_row_stays_in_its_slot(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(2)
    poisoned, healthy = (new_row(source) for source in codec.encode(SOURCES[:2]))
    lane.join([poisoned])
    lane.join([healthy])
    for buffer in host_caches(lane).memory:
        buffer[0].fill(np.nan)
    while lane.rows:
        lane.step()
    assert codec.decode([healthy.tokens]) == TARGETS[1:2]


@pytest.mark.parametrize("max_tokens", [1, 2, 5])
def test_max_tokens_ends_a_row(make_lane: MakeLane, codec: TranslationTokenizer, max_tokens: int) -> None:
    [source] = codec.encode(SOURCES[:1])
    short, whole = new_row(source, max_tokens), new_row(source)
    run(make_lane(2), [short, whole])
    assert short.finish is Finish.LENGTH
    assert short.tokens == whole.tokens[:max_tokens]


def test_a_limit_that_is_just_enough_is_still_a_limit(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    [source] = codec.encode(SOURCES[:1])
    whole = new_row(source)
    run(make_lane(1), [whole])
    cut, complete = (new_row(source, len(whole.tokens) + more) for more in (0, 1))
    run(make_lane(2), [cut, complete])
    assert (cut.finish, complete.finish) == (Finish.LENGTH, Finish.STOP)
    assert cut.tokens == complete.tokens


def test_the_longest_source_and_target_fit(make_lane: MakeLane) -> None:
    longest = [new_row([7 + index] * 63 + [END]) for index in range(3)]
    run(make_lane(3), longest)
    assert all(len(row.tokens) <= 63 for row in longest)


def test_a_slot_is_free_when_its_row_has_ended(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(3)
    lane.join([new_row(source, max_tokens) for source, max_tokens in zip(codec.encode(SOURCES[:3]), (1, 2, 9), strict=True)])
    assert [(len(lane.step()), lane.free) for _ in range(3)] == [(1, 1), (1, 2), (0, 2)]


def test_warming_up_changes_no_answer(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(2)
    lane.warm_up()
    rows = [new_row(source) for source in codec.encode(SOURCES[:2])]
    run(lane, rows)
    assert codec.decode([row.tokens for row in rows]) == TARGETS[:2]


def test_memory_is_what_the_manifest_says(make_lane: MakeLane) -> None:
    layers, heads, head_dim, source, target = 2, 2, 16, 64, 64
    assert make_lane(5).bytes == 4 * 2 * layers * 5 * heads * head_dim * (source + target)


def test_like_lengths_are_encoded_together() -> None:
    groups = group_by_length([new_row([7] * length) for length in (3, 40, 39, 3, 41)], 1.15)
    assert [[len(row.source) for row in group] for group in groups] == [[41, 40, 39], [3, 3]]


def test_all_pairs_differ() -> None:
    assert len(set(PAIRS)) == len(PAIRS) == 384
