"""The search lane, with the toy model's graphs: mixed searches do not disturb each other."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.lane_factory import SEARCH_SLOTS, LaneFactory
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Finish, Hypothesis, Row
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ....fixtures.toy import BUNDLE, SOURCES, TARGETS
from ..calls import make_call, row_of, rows_of

VOCABULARY = 300
END = 2
SLOTS = 12  # of the search lane

SEARCHES = {
    "scored": SearchParams(scores=True),
    "beam": SearchParams(beam_size=4, num_hypotheses=4),
    "wide": SearchParams(beam_size=7, length_penalty=0.3, coverage_penalty=0.2, alignment=True),
    "early": SearchParams(beam_size=3, num_hypotheses=2, length_penalty=0.0),
    "patient": SearchParams(beam_size=3, patience=2.0),
    "sample": SearchParams(sampling_topk=20, temperature=1.5, seed=4),
    "samples": SearchParams(sampling_topk=0, sampling_topp=0.9, num_hypotheses=3, seed=11),
    "constrained": SearchParams(beam_size=2, repetition_penalty=1.3, no_repeat_ngram_size=2, min_length=4),
}


@cache
def lanes() -> LaneFactory:
    return LaneFactory(open_bundle(BUNDLE), "fp32", SLOTS // SEARCH_SLOTS)


def new_lane() -> SearchLane:
    lane = lanes().make(LaneKind.SEARCH)
    assert isinstance(lane, SearchLane)
    return lane


@cache
def shared_lane() -> SearchLane:
    """One lane for all storms: what earlier rows left behind is part of the test."""
    return new_lane()


def new_row(source: Sequence[int], search: SearchParams, max_tokens: int = 63, prefix: tuple[int, ...] = ()) -> Row:
    return row_of(source, max_tokens, search, prefix)


def run(lane: SearchLane, *rows: Row) -> None:
    lane.join(rows)
    step_to_the_end(lane)


def step_to_the_end(lane: SearchLane) -> None:
    while lane.rows:
        lane.step()


def assert_dense(lane: SearchLane) -> None:
    """Every slot in use belongs to one hypothesis of the group that says so."""
    owned = sorted((slot, id(group)) for group in lane._groups for slot in group.slots)
    assert owned == [(slot, id(owner)) for slot, owner in enumerate(lane._owners)]
    assert lane._slots.used == len(lane._owners)
    assert lane.free == SLOTS - sum(group.width for group in lane._groups)


@cache
def alone(source: tuple[int, ...], name: str, max_tokens: int, prefix: tuple[int, ...]) -> tuple[Hypothesis, ...]:
    single = new_row(source, SEARCHES[name], max_tokens, prefix)
    run(shared_lane(), single)
    return single.hypotheses


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(h.tokens, h.finish) for h in found] == [(h.tokens, h.finish) for h in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        if other.attention is not None:
            assert one.attention == pytest.approx(other.attention, abs=1e-5)


sources = st.lists(st.integers(3, VOCABULARY - 1), max_size=30).map(lambda ids: (*ids, END))
prefixes = st.lists(st.integers(3, VOCABULARY - 1), max_size=3).map(tuple)
texts = st.tuples(sources, st.sampled_from(sorted(SEARCHES)), st.integers(4, 40), prefixes)
joins = st.tuples(st.just("join"), texts)
leaves = st.tuples(st.just("leave"), st.integers(0, 5))
steps = st.tuples(st.just("step"), st.integers(1, 8))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(joins | leaves | steps, max_size=30))
def test_a_text_does_not_care_who_joins_and_leaves(events: list[tuple[str, Any]]) -> None:
    lane = shared_lane()
    ended: list[Row] = []
    names = {}
    lane.leave(tuple(lane.rows))
    for kind, value in events:
        if kind == "join":
            source, name, max_tokens, prefix = value
            if lane.free >= SEARCHES[name].slots:
                joining = new_row(source, SEARCHES[name], max_tokens, prefix)
                names[id(joining)] = name
                lane.join([joining])
        elif kind == "leave" and lane.rows:
            lane.leave([lane.rows[value % len(lane.rows)]])
        elif kind == "step":
            for _ in range(value):
                ended += lane.step() if lane.rows else []
        assert_dense(lane)
    while lane.rows:
        ended += lane.step()
        assert_dense(lane)
    assert lane.free == SLOTS
    for row in ended:
        assert_same(row.hypotheses, alone(tuple(row.source), names[id(row)], row.max_tokens, row.prefix))
        assert row.finish is row.hypotheses[0].finish
        assert row.tokens == list(row.hypotheses[0].tokens)


def test_the_model_knows_its_sentences_by_beams(codec: TranslationTokenizer) -> None:
    rows = [new_row(source, SEARCHES["beam"]) for source in codec.encode(SOURCES[:3])]
    run(new_lane(), *rows)
    assert codec.decode([row.tokens for row in rows]) == TARGETS[:3]
    for each in rows:
        scores = [hypothesis.score for hypothesis in each.hypotheses]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.tokens for hypothesis in each.hypotheses}) == 4


def test_garbage_in_unused_memory_is_never_read(codec: TranslationTokenizer) -> None:
    lane = new_lane()
    caches = lane._slots.cache
    assert isinstance(caches, HostKVCache)
    caches.cache.fill(np.nan)
    caches.memory.fill(np.nan)
    rows = [new_row(source, SEARCHES["beam"]) for source in codec.encode(SOURCES[:3])]
    run(lane, *rows)
    assert codec.decode([row.tokens for row in rows]) == TARGETS[:3]


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_the_shortest_limit(name: str) -> None:
    single = new_row([5, 9, END], SEARCHES[name], 1)
    run(new_lane(), single)
    assert len(single.hypotheses) == SEARCHES[name].num_hypotheses
    for hypothesis in single.hypotheses:
        assert len(hypothesis.tokens) == (hypothesis.finish is Finish.LENGTH)


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_prefix_as_long_as_the_limit(name: str) -> None:
    single = new_row([5, 9, END], SEARCHES[name], 3, (7, 8, 9))
    run(new_lane(), single)
    [hypothesis] = single.hypotheses
    assert hypothesis.tokens == (7, 8, 9)
    assert hypothesis.finish is Finish.LENGTH


@pytest.mark.parametrize("name", ["scored", "beam", "wide", "early", "samples"])
def test_a_forced_end_counts_in_the_length(name: str, codec: TranslationTokenizer) -> None:
    [source] = codec.encode(SOURCES[:1])
    search = replace(SEARCHES[name], coverage_penalty=0.0)
    free, ended = (new_row(source, each, 4) for each in (search, replace(search, forced_end=True)))
    for each in (free, ended):
        run(new_lane(), each)
    assert [(h.tokens, h.finish) for h in ended.hypotheses] == [(h.tokens, h.finish) for h in free.hypotheses]
    for one, other in zip(ended.hypotheses, free.hypotheses, strict=True):
        assert (one.finish, len(one.tokens)) == (Finish.LENGTH, 4)
        assert one.score == pytest.approx((other.score or 0) * (4 / 5) ** search.length_penalty)


@pytest.mark.parametrize("name", ["scored", "beam", "patient", "sample"])
def test_settled_tokens_only_grow_and_begin_the_result(name: str, codec: TranslationTokenizer) -> None:
    [source] = codec.encode(SOURCES[:1])
    call = make_call(source=source, max_tokens=63, streams=True)
    row = call.rows[0]
    row.search = SEARCHES[name]
    lane = new_lane()
    lane.join(rows_of(call))
    seen = [list(row.tokens)]
    while lane.rows:
        lane.step()
        seen.append(list(row.tokens))
    for before, after in pairwise(seen):
        assert after[: len(before)] == before
    assert seen[-1] == list(row.hypotheses[0].tokens)
    assert any(seen[1:-1])


def test_a_step_that_fails_half_way_leaks_no_slot(monkeypatch: pytest.MonkeyPatch, codec: TranslationTokenizer) -> None:
    lane = new_lane()
    source = codec.encode(SOURCES[:1])[0]
    for name in ("duplicate", "fork"):
        failing = [new_row(source, SEARCHES["beam"]), new_row(source, SEARCHES["beam"])]
        lane.join(failing)
        with monkeypatch.context() as patch:
            patch.setattr(lane._slots, name, broken)
            with pytest.raises(RuntimeError):
                step_to_the_end(lane)
        lane.leave(failing)
        assert_dense(lane)
        assert lane._slots.used == 0
    healthy = new_row(source, SEARCHES["beam"])
    run(lane, healthy)
    assert codec.decode([healthy.tokens]) == TARGETS[:1]


def broken(*arguments: object) -> None:
    raise RuntimeError("no memory")


def test_equal_seeds_draw_equally_and_others_differ() -> None:
    def draw(seed: int, *neighbours: Row) -> tuple[int, ...]:
        single = new_row([5, 9, 17, END], SearchParams(sampling_topk=0, temperature=3.0, seed=seed), 20)
        run(new_lane(), single, *neighbours)
        return single.hypotheses[0].tokens

    assert draw(1) == draw(1, new_row([8, END], SEARCHES["beam"]), new_row([9, 9, END], SEARCHES["samples"]))
    assert len({draw(seed) for seed in range(6)}) > 3


def test_what_greedy_lanes_do_is_greedy() -> None:
    assert GREEDY.greedy
    assert not any(search.greedy for search in SEARCHES.values())
