"""The greedy lane, with the toy model's graphs."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.lane import group_by_length
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Finish
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ....fixtures.toy import BUNDLE, SOURCES, TARGETS
from .. import storms
from ..calls import decode_rows, row_of
from ..conftest import MakeLane

VOCABULARY = 300
END = 2


def host_cache(lane: GreedyLane) -> HostKVCache:
    cache = lane._slots.cache
    assert isinstance(cache, HostKVCache)
    return cache


def assert_dense(lane: GreedyLane) -> None:
    """Check that slot i belongs to row i, and has its state."""
    for slot, row in enumerate(lane.rows):
        assert row.finish is None
        assert lane._slots.last[slot] == len(row.source) - 1
        assert lane._slots.positions[slot] == len(row.tokens)
        assert not row.tokens or lane._slots.tokens[slot] == row.tokens[-1]
    assert len(lane.rows) + lane.free == lane._slots.count
    assert lane._slots.used == len(lane.rows)


def test_the_model_knows_its_sentences(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(64)
    lane.warm_up()
    rows = decode_rows(lane, [row_of(source, 63) for source in codec.encode(SOURCES)])
    assert codec.decode([row.tokens for row in rows]) == TARGETS
    assert {row.finish for row in rows} == {Finish.STOP}


@cache
def storm_lane() -> GreedyLane:
    """Make one lane for all storms: leftovers of earlier rows are part of the test."""
    lane = LaneFactory(open_bundle(BUNDLE), "fp32", 6).make(LaneKind.GREEDY)
    assert isinstance(lane, GreedyLane)
    return lane


@cache
def tokens_alone(source: tuple[int, ...], max_tokens: int) -> list[int]:
    [alone] = decode_rows(storm_lane(), [row_of(source, max_tokens)])
    return alone.tokens


sources = st.lists(st.integers(3, VOCABULARY - 1), max_size=40).map(lambda ids: (*ids, END))


@settings(max_examples=40)
@given(storms.events(st.tuples(sources, st.integers(1, 63)), 30))
def test_rows_that_join_and_leave_do_not_change_others(events: list[storms.Event]) -> None:
    lane = storm_lane()
    for row in storms.play(lane, events, row_of, lambda: assert_dense(lane)):
        assert row.tokens == tokens_alone(tuple(row.source), row.max_tokens)


def test_unused_memory_is_never_read(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(4)
    for buffer in (*host_cache(lane).cache, *host_cache(lane).memory):
        buffer.fill(np.nan)
    rows = decode_rows(lane, [row_of(source, 63) for source in codec.encode(SOURCES[:4])])
    assert codec.decode([row.tokens for row in rows]) == TARGETS[:4]


def test_nan_of_one_row_stays_in_its_slot(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(2)
    poisoned, healthy = (row_of(source, 63) for source in codec.encode(SOURCES[:2]))
    for row in (poisoned, healthy):
        lane.join([row])
    for buffer in host_cache(lane).memory:
        buffer[0].fill(np.nan)
    decode_rows(lane, [])
    assert codec.decode([healthy.tokens]) == TARGETS[1:2]


def test_max_tokens_ends_a_row(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    [source] = codec.encode(SOURCES[:1])
    [whole] = decode_rows(make_lane(1), [row_of(source, 63)])
    length = len(whole.tokens)
    rows = decode_rows(make_lane(5), [row_of(source, limit) for limit in (1, 2, 5, length, length + 1)])
    assert [row.finish for row in rows] == [Finish.LENGTH] * 4 + [Finish.STOP]
    assert [row.tokens for row in rows] == [whole.tokens[: row.max_tokens] for row in rows]


def test_the_longest_source_and_target_fit(make_lane: MakeLane) -> None:
    rows = decode_rows(make_lane(3), [row_of([7 + index] * 63 + [END], 63) for index in range(3)])
    assert all(len(row.tokens) <= 63 for row in rows)


def test_the_slot_of_a_row_that_ended_is_free(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    lane = make_lane(3)
    lane.join([row_of(source, limit) for source, limit in zip(codec.encode(SOURCES[:3]), (1, 2, 9), strict=True)])
    assert [(len(lane.step()), lane.free) for _ in range(3)] == [(1, 1), (1, 2), (0, 2)]


def test_the_size_of_the_caches_follows_from_the_manifest(make_lane: MakeLane) -> None:
    layers, heads, head_dim, source, target = 2, 2, 16, 64, 64
    assert make_lane(5).bytes == 4 * 2 * layers * 5 * heads * head_dim * (source + target)


@pytest.mark.parametrize(("padding", "lengths"), [(1.15, [[41, 40, 39], [3, 3]]), (1e6, [[41, 40, 39, 3, 3]])])
def test_rows_of_similar_length_are_encoded_together(padding: float, lengths: list[list[int]]) -> None:
    groups = group_by_length([row_of([7] * length, 9) for length in (3, 40, 39, 3, 41)], padding)
    assert [[row.size for row in group] for group in groups] == lengths
