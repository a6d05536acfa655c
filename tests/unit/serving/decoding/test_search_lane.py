"""The search lane, with the toy model's graphs: mixed searches in one batch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding import sampler
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.lane_factory import SEARCH_SLOTS, LaneFactory
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.runtime.native.library import LEVEL
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Finish, Hypothesis, Row
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ....fixtures.toy import BUNDLE, SOURCES, TARGETS, copy_bundle, edit_manifest
from .. import storms
from ..calls import decode_rows, make_call, row_of

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
    """Make one lane for all storms: leftovers of earlier rows are part of the test."""
    return new_lane()


def assert_dense(lane: SearchLane) -> None:
    """Check that every slot in use belongs to one hypothesis of one group."""
    owned = sorted((slot, id(group)) for group in lane._groups for slot in group.slots)
    assert owned == [(slot, id(owner)) for slot, owner in enumerate(lane._owners)]
    assert lane._slots.used == len(lane._owners)
    assert lane.free == SLOTS - sum(group.width for group in lane._groups)


@cache
def alone(source: tuple[int, ...], search: SearchParams, max_tokens: int, prefix: tuple[int, ...]) -> tuple[Hypothesis, ...]:
    [single] = decode_rows(shared_lane(), [row_of(source, max_tokens, search, prefix)])
    return single.hypotheses


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(h.tokens, h.finish) for h in found] == [(h.tokens, h.finish) for h in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        if other.attention is not None:
            assert one.attention == pytest.approx(other.attention, abs=1e-5)


sources = st.lists(st.integers(3, VOCABULARY - 1), max_size=30).map(lambda ids: (*ids, END))
prefixes = st.lists(st.integers(3, VOCABULARY - 1), max_size=3).map(tuple)
texts = st.tuples(sources, st.integers(4, 40), st.sampled_from([*SEARCHES.values()]), prefixes)


@settings(max_examples=16)
@given(storms.events(texts, 30))
def test_texts_that_join_and_leave_do_not_change_others(events: list[storms.Event]) -> None:
    lane = shared_lane()
    for row in storms.play(lane, events, row_of, lambda: assert_dense(lane)):
        assert_same(row.hypotheses, alone(tuple(row.source), row.search, row.max_tokens, row.prefix))
        assert row.finish is row.hypotheses[0].finish
        assert row.tokens == list(row.hypotheses[0].tokens)
    assert lane.free == SLOTS


def test_all_ways_to_rank_choose_the_same(codec: TranslationTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for kind, few, kernels in ((LaneKind.SEARCH, 256, ""), (LaneKind.SEARCH, 256, "off"), (LaneKind.WIDE, 1, "off")):
        monkeypatch.setattr(sampler, "FEW", few)
        monkeypatch.setenv(LEVEL, kernels)
        lane = lanes().make(kind)
        found = (decode_rows(lane, [row_of(source, 40, SEARCHES["beam"])]) for source in codec.encode(SOURCES[:8]))
        results.append([row.hypotheses for [row] in found])
    assert lane.free == SLOTS // SEARCH_SLOTS
    assert results[0] == results[1] == results[2]


def test_unused_memory_is_never_read(codec: TranslationTokenizer) -> None:
    lane = new_lane()
    caches = lane._slots.cache
    assert isinstance(caches, HostKVCache)
    caches.cache.fill(np.nan)
    caches.memory.fill(np.nan)
    rows = [row_of(source, 63, SEARCHES["beam"]) for source in codec.encode(SOURCES[:3])]
    decode_rows(lane, rows)
    assert codec.decode([row.tokens for row in rows]) == TARGETS[:3]


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_limit_of_one_token(name: str) -> None:
    single = row_of([5, 9, END], 1, SEARCHES[name])
    decode_rows(new_lane(), [single])
    assert len(single.hypotheses) == SEARCHES[name].num_hypotheses
    for hypothesis in single.hypotheses:
        assert len(hypothesis.tokens) == (hypothesis.finish is Finish.LENGTH)


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_prefix_as_long_as_the_limit(name: str) -> None:
    single = row_of([5, 9, END], 3, SEARCHES[name], (7, 8, 9))
    decode_rows(new_lane(), [single])
    [hypothesis] = single.hypotheses
    assert hypothesis.tokens == (7, 8, 9)
    assert hypothesis.finish is Finish.LENGTH


@pytest.mark.parametrize("name", ["scored", "beam", "wide", "early", "samples"])
def test_a_forced_end_counts_for_the_length_penalty(name: str, codec: TranslationTokenizer) -> None:
    [source] = codec.encode(SOURCES[:1])
    search = replace(SEARCHES[name], coverage_penalty=0.0)
    free, ended = (row_of(source, 4, each) for each in (search, replace(search, forced_end=True)))
    for each in (free, ended):
        decode_rows(new_lane(), [each])
    assert [(h.tokens, h.finish) for h in ended.hypotheses] == [(h.tokens, h.finish) for h in free.hypotheses]
    for one, other in zip(ended.hypotheses, free.hypotheses, strict=True):
        assert (one.finish, len(one.tokens)) == (Finish.LENGTH, 4)
        assert one.score == pytest.approx((other.score or 0) * (4 / 5) ** search.length_penalty)


@pytest.mark.parametrize("name", ["scored", "beam", "patient", "sample"])
def test_streamed_tokens_are_final(name: str, codec: TranslationTokenizer) -> None:
    [source] = codec.encode(SOURCES[:1])
    call = make_call(source=source, max_tokens=63, streams=True)
    row = call.rows[0]
    row.search = SEARCHES[name]
    lane = new_lane()
    lane.join(call.rows)
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
    for owner, name in ((lane._slots, "duplicate"), (lane._slots.cache, "copy_rows")):
        failing = [row_of(source, 63, SEARCHES["beam"]), row_of(source, 63, SEARCHES["beam"])]
        lane.join(failing)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            with pytest.raises(RuntimeError):
                decode_rows(lane, [])
        lane.reset()
        assert_dense(lane)
        assert lane._slots.used == 0
    healthy = row_of(source, 63, SEARCHES["beam"])
    decode_rows(lane, [healthy])
    assert codec.decode([healthy.tokens]) == TARGETS[:1]


def broken(*arguments: object) -> None:
    raise RuntimeError("no memory")


@pytest.mark.parametrize("patience", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("length_penalty", [-100.0, 0.0, 1.0, 100.0])
def test_as_many_hypotheses_as_requested_with_finite_scores(
    codec: TranslationTokenizer, patience: float, length_penalty: float
) -> None:
    search = SearchParams(beam_size=4, num_hypotheses=4, patience=patience, length_penalty=length_penalty)
    [source] = codec.encode(SOURCES[:1])
    row = row_of(source, 63, search)
    decode_rows(new_lane(), [row])
    assert len({hypothesis.tokens for hypothesis in row.hypotheses}) == 4
    assert np.isfinite(np.array([hypothesis.score for hypothesis in row.hypotheses], np.float32)).all()


def test_equal_seeds_give_equal_samples() -> None:
    def draw(seed: int, *neighbours: Row) -> tuple[int, ...]:
        single = row_of([5, 9, 17, END], 20, SearchParams(sampling_topk=0, temperature=3.0, seed=seed))
        decode_rows(new_lane(), [single, *neighbours])
        return single.hypotheses[0].tokens

    assert draw(1) == draw(1, row_of([8, END], 63, SEARCHES["beam"]), row_of([9, 9, END], 63, SEARCHES["samples"]))
    assert len({draw(seed) for seed in range(6)}) > 3


@pytest.mark.parametrize(("beam_size", "kind"), [(1, LaneKind.GREEDY), (2, LaneKind.SEARCH)])
def test_the_first_lane_is_that_of_the_models_default(tmp_path: Path, beam_size: int, kind: LaneKind) -> None:
    folder = copy_bundle(tmp_path)
    edit_manifest(folder, lambda manifest: manifest["generation"].update(beam_size=beam_size))
    assert LaneFactory(open_bundle(folder), "fp32", 4).usual is kind
