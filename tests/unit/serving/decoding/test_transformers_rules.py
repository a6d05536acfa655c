"""Searches by the rules of transformers, compared with its `generate()` over tabulated logits."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, GenerationMixin, LogitsProcessor, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import Generation, SpecialTokens, TranslationManifest
from triptych_serving.bundle.search_params import EarlyStopping, SearchParams, SearchRules
from triptych_serving.decoding.logits_processor import BAN
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Finish, Row
from triptych_serving.text.vocabulary import Vocabulary

from ..calls import decode_rows, row_of
from ..toy_graphs import END, VOCABULARY, TableStep, make_slots, table

START = END  # as in BART and NLLB
SEEDS = range(8, 16)
STOPPING: dict[EarlyStopping, bool | str] = {
    EarlyStopping.HEURISTIC: False,
    EarlyStopping.FULL: True,
    EarlyStopping.NEVER: "never",
}
BANNED = ((0,), (5,), (7, 8), (9, 4, 11), (3, END))
Found = tuple[tuple[int, ...], float]  # tokens without start and end, and the score; without beams it is 0


def make_lane(bundle: Bundle, step: TableStep, banned: tuple[tuple[int, ...], ...] = (), slots: int = 40) -> SearchLane:
    manifest = replace(
        bundle.manifest_of(TranslationManifest),
        tokens=SpecialTokens(pad=0, start=START, end=END),
        generation=Generation(max_length=20, rules=SearchRules.TRANSFORMERS, suppressed_tokens=banned),
    )
    return SearchLane(make_slots(manifest, step, slots), manifest.tokens, Vocabulary([b""] * VOCABULARY))


def source_of(seed: int) -> tuple[int, ...]:
    dice = random.Random(seed)
    return (*(dice.randrange(3, VOCABULARY) for _ in range(dice.randrange(1, 6))), END)


@dataclass(frozen=True)
class Generate:
    """Arguments of `generate()`, except that `max_tokens` does not count the end, which may be forced."""

    max_tokens: int = 14
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    forced: tuple[int, ...] = ()
    forced_end: bool = False
    min_length: int = 0  # start token and forced ones included
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()


class Table(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """A decoder of texts whose prompt is the start token; the beams of a text follow each other."""

    config_class = PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, sources: Sequence[tuple[int, ...]]) -> None:
        super().__init__(PretrainedConfig(vocab_size=VOCABULARY, is_encoder_decoder=False))  # type: ignore[call-arg]
        self.sources = sources
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> CausalLMOutput:
        beams = len(input_ids) // len(self.sources)
        rows = [table(self.sources[row // beams], tuple(ids[1:])) for row, ids in enumerate(input_ids.tolist())]
        return CausalLMOutput(logits=torch.tensor(np.array(rows, np.float32))[:, None])

    def prepare_inputs_for_generation(self, input_ids: Any, **_: Any) -> Any:  # type: ignore[override]
        return {"input_ids": input_ids}


class Forced(LogitsProcessor):
    """Forces the first tokens, as `forced_bos_token_id` does with one."""

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self.tokens = tokens

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        length = input_ids.shape[1]
        if length <= len(self.tokens):
            scores = torch.full_like(scores, -math.inf)
            scores[:, self.tokens[length - 1]] = 0
        return scores


@torch.no_grad()
def generate(sources: Sequence[tuple[int, ...]], options: Generate) -> list[list[Found]]:
    """Return the `num_beams` translations of each source, the best first; without beams their scores are 0."""
    config: Any = GenerationConfig(  # type: ignore[no-untyped-call]
        max_length=1 + options.max_tokens + options.forced_end,
        min_length=options.min_length,
        num_beams=options.num_beams,
        num_return_sequences=options.num_beams,
        length_penalty=options.length_penalty,
        early_stopping=options.early_stopping,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        forced_eos_token_id=END if options.forced_end else None,
        bad_words_ids=[list(run) for run in options.bad_words] or None,
        do_sample=False,
        use_cache=False,
        eos_token_id=END,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    prompts = torch.full((len(sources), 1), START)
    model: Any = Table(sources)
    found = model.generate(prompts, generation_config=config, logits_processor=[Forced(options.forced)])
    scores = found.sequences_scores.tolist() if options.num_beams > 1 else [0.0] * len(sources)
    sequences = [ids[: ids.index(END)] if END in ids else ids for ids in found.sequences[:, 1:].tolist()]
    every = [(tuple(ids), score) for ids, score in zip(sequences, scores, strict=True)]
    return [every[at : at + options.num_beams] for at in range(0, len(every), options.num_beams)]


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
    return [(one.tokens, (one.score or 0.0) if row.search.beam_size > 1 else 0.0) for one in row.hypotheses]


def assert_same(row: Row, expected: list[Found]) -> None:
    assert [tokens for tokens, _ in found(row)] == [tokens for tokens, _ in expected]
    assert [score for _, score in found(row)] == pytest.approx([score for _, score in expected], abs=1e-4)


def compare(bundle: Bundle, **options: Any) -> list[Row]:
    """Decode all seeds at once in one lane, and compare each with `generate()`."""
    asked = Generate(**options)
    rows = [new_row(seed, asked) for seed in SEEDS]
    decode_rows(make_lane(bundle, TableStep(), asked.bad_words), rows)
    for row, expected in zip(rows, generate([source_of(seed) for seed in SEEDS], asked), strict=True):
        assert_same(row, expected)
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
    "banned": {"bad_words": BANNED},
    "single bans": {"bad_words": ((0,), (5,), (END - 1,))},
    "shortest": {"min_length": 9},
    "repetition": {"repetition_penalty": 1.7},
    "repetition wanted": {"repetition_penalty": 0.6},
    "no pair twice": {"no_repeat_ngram_size": 2},
    "no token twice": {"no_repeat_ngram_size": 1},
    "everything": {
        "bad_words": BANNED,
        "min_length": 5,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 3,
        "forced": (6,),
        "forced_end": True,
        "early_stopping": True,
    },
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("beams", [1, 4])
def test_constraints(bundle: Bundle, name: str, beams: int) -> None:
    """Constraints are on the logits of greedy search, and on the log-probabilities of beams."""
    plain = [new_row(seed, Generate(num_beams=beams)) for seed in SEEDS]
    decode_rows(make_lane(bundle, TableStep()), plain)
    rows = compare(bundle, num_beams=beams, **CONSTRAINTS[name])
    assert beams == 1 or [found(row) for row in rows] != [found(row) for row in plain]


def test_all_options_in_one_batch(bundle: Bundle) -> None:
    """Rows with and without edits and forced tokens do not change each other."""
    asked = [
        Generate(14, beams, alpha, stopping, forced, end, shortest, penalty, 0, BANNED)
        for beams, alpha in ((2, 0.0), (4, 1.0))
        for stopping in STOPPING.values()
        for forced, end in (((), False), ((6, 9), True))
        for shortest, penalty in ((0, 1.0), (6, 1.4))
    ]
    rows = [new_row(seed, options) for seed, options in enumerate(asked)]
    decode_rows(make_lane(bundle, TableStep(), BANNED), rows)
    for seed, (row, options) in enumerate(zip(rows, asked, strict=True)):
        assert_same(row, *generate([source_of(seed)], options))


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
    logits = table((7, END), (6,)).copy()
    logits[[START, 6]] *= np.where(logits[[START, 6]] < 0, 1.5, 1 / 1.5)
    logits[[0, 5]] = -math.inf
    exact = np.exp(logits) / np.exp(logits).sum()
    drawn = [(*hypothesis.tokens, END)[1] for row in rows for hypothesis in row.hypotheses]
    counts = np.bincount(drawn, minlength=VOCABULARY)
    assert len(drawn) == 1_000
    assert counts[[0, 5]].sum() == 0
    assert np.abs(counts / len(drawn) - exact).max() < 0.05
