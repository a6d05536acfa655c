"""Searches by the rules of transformers, compared with a plain reference over tabulated logits."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import Generation, SpecialTokens, TranslationManifest
from triptych_serving.bundle.search_params import EarlyStopping, SearchParams, SearchRules
from triptych_serving.decoding.logits_processor import BAN
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Finish, Row
from triptych_serving.text.vocabulary import Vocabulary

from ..calls import decode_rows, row_of
from ..generate import Found, Generate, beam_search, greedy
from ..toy_graphs import END, VOCABULARY, TableStep, make_slots, table

START = END  # as in BART and NLLB
SEEDS = range(8, 16)
STOPPING: dict[EarlyStopping, bool | str] = {
    EarlyStopping.HEURISTIC: False,
    EarlyStopping.FULL: True,
    EarlyStopping.NEVER: "never",
}
BANNED = ((0,), (5,), (7, 8), (9, 4, 11), (3, END))


def make_lane(bundle: Bundle, step: TableStep, banned: tuple[tuple[int, ...], ...] = (), slots: int = 40) -> SearchLane:
    manifest = replace(
        bundle.manifest_of(TranslationManifest),
        tokens=SpecialTokens(pad=0, start=START, end=END),
        generation=Generation(20, rules=SearchRules.TRANSFORMERS, suppressed_tokens=banned),
    )
    return SearchLane(make_slots(manifest, step, slots), manifest.tokens, Vocabulary([b""] * VOCABULARY))


def source_of(seed: int) -> tuple[int, ...]:
    dice = random.Random(seed)
    return (*(dice.randrange(3, VOCABULARY) for _ in range(dice.randrange(1, 6))), END)


def new_row(seed: int, options: Generate) -> Row:
    """Make a row with the search options of the reference."""
    stopping = next(name for name, value in STOPPING.items() if value == options.early_stopping)
    search = SearchParams(
        beam_size=options.num_beams,
        num_hypotheses=options.num_beams,
        length_penalty=options.length_penalty,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        min_length=max(0, options.min_length - 1),
        rules=SearchRules.TRANSFORMERS,
        early_stopping=stopping,
        forced_end=options.forced_end,
        suppressed_tokens=options.bad_words,
        scores=True,
    )
    return row_of(source_of(seed), options.max_tokens, search, options.forced)


def found(row: Row) -> list[Found]:
    return [Found(hypothesis.tokens, hypothesis.score or 0.0) for hypothesis in row.hypotheses]


def assert_same(row: Row, expected: list[Found]) -> None:
    assert [one.tokens for one in found(row)] == [one.tokens for one in expected]
    assert [one.score for one in found(row)] == pytest.approx([one.score for one in expected], abs=1e-4)


def compare(bundle: Bundle, banned: tuple[tuple[int, ...], ...] = (), seeds: range = SEEDS, **options: Any) -> list[Row]:
    """Decode all seeds at once in one lane, and compare each with the reference."""
    asked = Generate(START, END, **{"max_tokens": 14, **options}, bad_words=banned)
    rows = [new_row(seed, asked) for seed in seeds]
    decode_rows(make_lane(bundle, TableStep(), banned), rows)
    for seed, row in zip(seeds, rows, strict=True):
        assert_same(row, beam_search(partial(table, source_of(seed)), asked))
    return rows


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("stopping", STOPPING)
def test_beams(bundle: Bundle, stopping: EarlyStopping, alpha: float) -> None:
    rows = compare(bundle, early_stopping=STOPPING[stopping], length_penalty=alpha, num_beams=3)
    assert {row.finish for row in rows} >= {Finish.STOP}


def test_the_ways_to_stop_differ(bundle: Bundle) -> None:
    """Otherwise the comparison would prove little."""
    every = [
        [found(row) for row in compare(bundle, early_stopping=value, length_penalty=2.0, num_beams=3)]
        for value in STOPPING.values()
    ]
    assert every[0] != every[1] != every[2] != every[0]


@pytest.mark.parametrize("max_tokens", [2, 6, 14])
@pytest.mark.parametrize("stopping", STOPPING)
def test_a_forced_end(bundle: Bundle, stopping: EarlyStopping, max_tokens: int) -> None:
    for alpha in (0.0, 2.0):
        asked: dict[str, Any] = {"early_stopping": STOPPING[stopping], "num_beams": 4, "length_penalty": alpha}
        rows = compare(bundle, forced_end=True, max_tokens=max_tokens, **asked)
        limits = [row for row in rows if any(hypothesis.finish is Finish.LENGTH for hypothesis in row.hypotheses)]
        assert limits or max_tokens == 14


@pytest.mark.parametrize(("forced", "forced_end"), [((6,), True), ((6, 9, 13), False)])
def test_forced_first_tokens(bundle: Bundle, forced: tuple[int, ...], forced_end: bool) -> None:
    for alpha in (0.6, 1.0):
        rows = compare(bundle, forced=forced, forced_end=forced_end, num_beams=4, length_penalty=alpha, max_tokens=7)
        assert all(hypothesis.tokens[: len(forced)] == forced for row in rows for hypothesis in row.hypotheses)


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "banned": {"banned": BANNED},
    "single bans": {"banned": ((0,), (5,), (END - 1,))},
    "shortest": {"min_length": 9},
    "repetition": {"repetition_penalty": 1.7},
    "repetition wanted": {"repetition_penalty": 0.6},
    "no pair twice": {"no_repeat_ngram_size": 2},
    "no token twice": {"no_repeat_ngram_size": 1},
    "everything": {
        "banned": BANNED,
        "min_length": 5,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 3,
        "forced": (6,),
        "forced_end": True,
        "early_stopping": True,
    },
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_on_log_probabilities(bundle: Bundle, name: str) -> None:
    options = dict(CONSTRAINTS[name])
    plain = [new_row(seed, Generate(START, END, max_tokens=14, num_beams=4)) for seed in SEEDS]
    decode_rows(make_lane(bundle, TableStep()), plain)
    rows = compare(bundle, options.pop("banned", ()), num_beams=4, **options)
    assert [found(row) for row in rows] != [found(row) for row in plain]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_on_logits_of_greedy_search(bundle: Bundle, name: str) -> None:
    options = dict(CONSTRAINTS[name])
    banned = options.pop("banned", ())
    asked = Generate(START, END, max_tokens=14, bad_words=banned, **options)
    rows = [new_row(seed, asked) for seed in SEEDS]
    decode_rows(make_lane(bundle, TableStep(), banned), rows)
    for seed, row in zip(SEEDS, rows, strict=True):
        expected = greedy(partial(table, source_of(seed)), asked)
        assert row.hypotheses[0].tokens == tuple(token for token in expected if token != END)


def test_all_options_in_one_batch(bundle: Bundle) -> None:
    """Rows with and without edits and forced tokens do not change each other."""
    asked = [
        Generate(START, END, 14, beams, alpha, stopping, forced, end, shortest, penalty, 0, BANNED)
        for beams, alpha in ((2, 0.0), (4, 1.0))
        for stopping in STOPPING.values()
        for forced, end in (((), False), ((6, 9), True))
        for shortest, penalty in ((0, 1.0), (6, 1.4))
    ]
    rows = [new_row(seed, options) for seed, options in enumerate(asked)]
    decode_rows(make_lane(bundle, TableStep(), BANNED), rows)
    for seed, (row, options) in enumerate(zip(rows, asked, strict=True)):
        assert_same(row, beam_search(partial(table, source_of(seed)), options))


def test_bans_of_single_tokens_cost_rows_without_options_nothing(bundle: Bundle) -> None:
    banned = ((0,), (5,), (9,))
    search = SearchParams(beam_size=4, rules=SearchRules.TRANSFORMERS, suppressed_tokens=banned)
    assert not search.constrained
    step = TableStep()
    lane = make_lane(bundle, step, banned)
    lane.join([row_of(source_of(1), 10, search)])
    assert lane._edits() == ()
    lane.step()
    assert step.edits == 4  # three bans, filled up
    best = lane._slots.best
    assert (best["top_log_probabilities"][:1] > BAN / 2).all()
    assert not np.isin(best["top_tokens"][:1], [0, 5, 9]).any()


def test_rows_that_need_only_the_arg_max() -> None:
    """The step graph knows the bans of single tokens; it does not know longer runs."""
    rules: dict[str, Any] = {"rules": SearchRules.TRANSFORMERS, "forced_end": True}
    assert LaneKind.of(Row([5, END], 9, SearchParams(**rules, suppressed_tokens=((0,), (5,))), (6,))) is LaneKind.GREEDY
    assert LaneKind.of(Row([5, END], 9, SearchParams(**rules, suppressed_tokens=((0,), (5, 6))))) is LaneKind.SEARCH
    assert LaneKind.of(Row([5, END], 9, SearchParams(**rules, min_length=2))) is LaneKind.SEARCH


def test_samples_are_drawn_from_what_the_penalties_leave(bundle: Bundle) -> None:
    """The graph does not normalise edited scores, the sampler does; penalties and bans are those of `generate()`."""
    banned = ((0,), (5,))
    search = SearchParams(
        sampling_topk=0,
        num_hypotheses=40,
        length_penalty=0.0,
        repetition_penalty=1.5,
        rules=SearchRules.TRANSFORMERS,
        suppressed_tokens=banned,
    )
    rows = [row_of((7, END), 2, replace(search, seed=seed), (6,)) for seed in range(25)]
    lane = make_lane(bundle, TableStep(), banned)
    decode_rows(lane, rows)
    asked = Generate(START, END, 2, repetition_penalty=1.5, bad_words=banned)
    logits = asked.process([START, 6], table((7, END), (6,)))
    exact = np.exp(logits) / np.exp(logits).sum()
    drawn = [(*hypothesis.tokens, END)[1] for row in rows for hypothesis in row.hypotheses]
    counts = np.bincount(drawn, minlength=VOCABULARY)
    assert len(drawn) == 1_000
    assert counts[[0, 5]].sum() == 0
    assert np.abs(counts / len(drawn) - exact).max() < 0.05
