"""The greedy lane, with the toy model's graphs."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.lane import group_by_length
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Finish
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ....fixtures.toy import BUNDLE, SOURCES, TARGETS
from .. import storms
from ..calls import call_of, decode_rows, row_of
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


@settings(max_examples=20)
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


def test_the_size_of_the_caches_follows_from_the_manifest(make_lane: MakeLane) -> None:
    layers, heads, head_dim, source, target = 2, 2, 16, 64, 64
    assert make_lane(5).bytes == 4 * 2 * layers * 5 * heads * head_dim * (source + target)


@pytest.mark.parametrize(
    ("run_tokens", "lengths"), [(0, [[41], [40, 40], [3, 3]]), (8, [[41, 40, 40], [3, 3]]), (1 << 20, [[41, 40, 40, 3, 3]])]
)
def test_rows_of_similar_length_are_encoded_together(run_tokens: int, lengths: list[list[int]]) -> None:
    groups = group_by_length([row_of([7] * length, 9) for length in (3, 40, 40, 3, 41)], run_tokens)
    assert [[row.size for row in group] for group in groups] == lengths


@given(st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(0, 12))
def test_no_other_groups_of_rows_cost_less(lengths: list[int], run_tokens: int) -> None:
    def cost(groups: Sequence[Sequence[int]]) -> int:
        return sum(run_tokens + max(group) * len(group) for group in groups)

    groups = [[row.size for row in group] for group in group_by_length([row_of([7] * size, 9) for size in lengths], run_tokens)]
    ordered = sorted(lengths, reverse=True)
    assert [size for group in groups for size in group] == ordered
    places = range(1, len(ordered))
    cuts = (cut for count in range(len(ordered)) for cut in combinations(places, count))
    assert cost(groups) == min(cost([ordered[i:j] for i, j in pairwise((0, *cut, len(ordered)))]) for cut in cuts)


@pytest.mark.parametrize("kind", [LaneKind.GREEDY, LaneKind.SEARCH])
def test_equal_sources_are_encoded_once_whatever_the_options(
    kind: LaneKind, codec: TranslationTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = HostKVCache.encode

    def count(self: HostKVCache, source: Array, lengths: Array, first: int) -> None:
        encoded.append(len(source))
        encode(self, source, lengths, first)

    monkeypatch.setattr(HostKVCache, "encode", count)
    factory = LaneFactory(open_bundle(BUNDLE), "fp32", 16)
    factory.open(kind)
    lane, (one, two) = factory.make(kind), codec.encode(SOURCES[:2])
    search = [SearchParams(scores=kind is LaneKind.SEARCH), SearchParams(beam_size=2 if kind is LaneKind.SEARCH else 1)]
    options = [
        (one, search[0], ()),
        (two, search[1], ()),
        (one, search[1], (9, 8)),
        (one, search[0], ()),
        (two, search[0], (7,)),
    ]
    alone = [decode_rows(factory.make(kind), [row_of(source, 40, *rest)])[0] for source, *rest in options]
    del encoded[:]
    rows = [row_of(source, 40, *rest) for source, *rest in options]
    call_of(*rows)
    lane.join(rows[:4])
    assert sum(encoded) == 2
    lane.step()
    lane.join(rows[4:])  # while the row with the same source is running
    assert sum(encoded) == 2
    while lane.rows:
        lane.step()
    assert [row.hypotheses for row in rows] == [row.hypotheses for row in alone]
