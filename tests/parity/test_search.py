"""Every search of the fp32 engine against PyTorch: beams, penalties, prefixes, samples, scores; mixed freely in one engine."""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.search_lane import MAX_CANDIDATES
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.scheduling.request import Finish, Row
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer

from ..fixtures.toy import BUNDLE, HERE, SOURCES, TARGETS
from .reference import TOLERANCE, assert_found, expected, log_probabilities, token_log_probabilities

END = 2
LIMIT = 18  # most tokens of a translation


@pytest.fixture(scope="module")
def model() -> Transformer:
    return load_checkpoint(HERE / "checkpoint").model.eval()


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    translator = Translator("toy", 1, open_bundle(BUNDLE), DecodeModelOptions("fp32", EngineOptions(workers=1, slots=16)))
    yield translator
    translator.close()


@pytest.fixture(scope="module")
def sources(translator: Translator) -> list[list[int]]:
    """Sentences with their words in disorder, of which the model is less sure than of what it has learnt."""
    dice = random.Random(5)
    texts = [" ".join(dice.sample(text.split(), len(text.split()))) for text in SOURCES[:: len(SOURCES) // 3]]
    return [list(ids) for ids in translator.tokenizer.encode(texts)]


SEARCHES: dict[str, dict[str, Any]] = {
    "beam 4": {"beam_size": 4},
    "beam 5, all": {"beam_size": 5, "num_hypotheses": 5},
    "one beam, scores": {},
    "length 0": {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 0.0},
    "length 0, impatient": {"beam_size": 4, "num_hypotheses": 1, "length_penalty": 0.0, "patience": 0.5},
    "length below 0": {"beam_size": 4, "num_hypotheses": 4, "length_penalty": -0.5},
    "impatient": {"beam_size": 5, "num_hypotheses": 2, "patience": 0.5},
    "patient": {"beam_size": 3, "num_hypotheses": 3, "patience": 2.5},
    "coverage": {"beam_size": 4, "num_hypotheses": 4, "coverage_penalty": 0.3},
    "repetition": {"beam_size": 4, "num_hypotheses": 4, "repetition_penalty": 1.4},
    "repetition below 1": {"beam_size": 4, "num_hypotheses": 4, "repetition_penalty": 0.8},
    "repetition, one beam": {"repetition_penalty": 1.4},
    "no pair twice": {"beam_size": 4, "num_hypotheses": 4, "no_repeat_ngram_size": 2},
    "no token twice": {"beam_size": 2, "num_hypotheses": 2, "no_repeat_ngram_size": 1},
    "long": {"beam_size": 4, "num_hypotheses": 4, "min_length": 15},
    "long, one beam": {"min_length": LIMIT},
    "everything": {
        "beam_size": 5,
        "num_hypotheses": 4,
        "patience": 1.4,
        "length_penalty": 0.8,
        "coverage_penalty": 0.2,
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3,
        "min_length": 4,
    },
}


def make_row(source: Sequence[int], max_tokens: int = LIMIT, prefix: Sequence[int] = (), **options: Any) -> Row:
    return Row(source, max_tokens, SearchParams(scores=True, **options), tuple(prefix))


@pytest.fixture(scope="module")
def mixed(translator: Translator, sources: list[list[int]]) -> dict[str, list[Row]]:
    """All searches of all sources, decoded at once in a random order."""
    rows = {name: [make_row(source, **options) for source in sources] for name, options in SEARCHES.items()}
    everything = [row for group in rows.values() for row in group]
    random.Random(1).shuffle(everything)
    translator.run(everything)
    return rows


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_finds_what_the_reference_finds(name: str, mixed: dict[str, list[Row]], model: Transformer) -> None:
    for row in mixed[name]:
        assert_found(row, expected(model, row))


def test_the_searches_differ(mixed: dict[str, list[Row]]) -> None:
    """Else the comparison would show little."""
    plain = [row.tokens for row in mixed["beam 4"]]
    for name in ("length below 0", "coverage", "repetition", "no token twice", "long"):
        assert [row.tokens for row in mixed[name]] != plain, name
    assert {row.finish for rows in mixed.values() for row in rows} == set(Finish)
    best = [{hypothesis.tokens for hypothesis in row.hypotheses} for row in mixed["beam 5, all"]]
    assert all(len(different) == 5 for different in best)


def test_one_beam_is_greedy_search_whatever_the_patience(translator: Translator, sources: list[list[int]]) -> None:
    greedy_rows = [Row(source[:size], LIMIT) for source in sources for size in range(1, len(source))]
    patient = [make_row(row.source, patience=8.0, length_penalty=2.0) for row in greedy_rows]
    translator.run([*greedy_rows, *patient])
    assert [row.tokens for row in patient] == [row.tokens for row in greedy_rows]


@pytest.mark.parametrize("beam_size", [140, 180])
def test_beams_may_have_more_continuations_than_samples(beam_size: int, sources: list[list[int]], model: Transformer) -> None:
    """And more than the vocabulary has tokens."""
    assert MAX_CANDIDATES < 2 * 140 < model.config.vocabulary_size < 2 * 180
    rows = [make_row(source, 5, beam_size=beam_size, num_hypotheses=beam_size) for source in sources[:2]]
    options = DecodeModelOptions("fp32", EngineOptions(workers=1, slots=beam_size))
    with closing(Translator("toy", 1, open_bundle(BUNDLE), options)) as translator:
        translator.run(rows)
    for row in rows:
        assert_found(row, expected(model, row))


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_the_limit_ends_all_beams(
    max_tokens: int, translator: Translator, sources: list[list[int]], model: Transformer
) -> None:
    options = {"beam_size": 4, "num_hypotheses": 4}
    rows = [make_row(source, max_tokens, **options) for source in sources]
    translator.run(rows)
    for row in rows:
        assert_found(row, expected(model, row))
        assert max(len(hypothesis.tokens) for hypothesis in row.hypotheses) == max_tokens


@pytest.mark.parametrize("options", [{}, {"beam_size": 4, "num_hypotheses": 4}, {"beam_size": 3, "length_penalty": 0.0}])
@pytest.mark.parametrize("length", [1, 8])
def test_translations_start_with_their_prefixes(
    length: int, options: dict[str, Any], translator: Translator, sources: list[list[int]], model: Transformer
) -> None:
    prefixes = [ids[:length] for ids in translator.tokenizer.encode(TARGETS[7 : 7 + len(sources)])]
    more = {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}
    rows = [
        make_row(source, LIMIT, prefix, **options, **constraints)
        for source, prefix in zip(sources, prefixes, strict=True)
        for constraints in ({}, more)
    ]
    translator.run(rows)
    for row in rows:
        assert row.hypotheses[0].tokens[:length] == row.prefix
        assert_found(row, expected(model, row))


def test_a_prefix_of_a_greedy_row(translator: Translator, sources: list[list[int]], model: Transformer) -> None:
    """The plain graph follows it as well."""
    prefixes = [tuple(ids[:3]) for ids in translator.tokenizer.encode(TARGETS[7 : 7 + len(sources)])]
    rows = [Row(source, LIMIT, prefix=prefix) for source, prefix in zip(sources, prefixes, strict=True)]
    assert all(row.search.greedy for row in rows)
    free = [Row(source, LIMIT) for source in sources]
    translator.run([*rows, *free])
    assert [row.tokens for row in free] == greedy(model, sources, LIMIT)
    for row in rows:
        [best] = expected(model, row)
        assert (tuple(row.tokens), row.finish is Finish.STOP) == (best.tokens, best.ended)


@pytest.mark.parametrize("options", [{}, {"beam_size": 4, "num_hypotheses": 3, "coverage_penalty": 0.2}])
def test_attention_is_the_last_layers(
    options: dict[str, Any], translator: Translator, sources: list[list[int]], model: Transformer
) -> None:
    prefix = translator.tokenizer.encode([TARGETS[0]])[0][:2]
    rows = [make_row(source, LIMIT, start, alignment=True, **options) for source in sources for start in ([], prefix)]
    translator.run(rows)
    for row in rows:
        assert_found(row, expected(model, row))
        for hypothesis in row.hypotheses:
            assert hypothesis.attention is not None
            np.testing.assert_allclose(hypothesis.attention.sum(axis=1), 1, atol=TOLERANCE)


SAMPLES = [
    {"sampling_topk": 0, "temperature": 3.0},
    {"sampling_topk": 5, "temperature": 2.5},
    {"sampling_topk": 0, "sampling_topp": 0.8, "temperature": 3.0},
    {"sampling_topk": 300, "sampling_topp": 0.9, "temperature": 3.0},
    {"sampling_topk": 0, "temperature": 2.0, "repetition_penalty": 1.3},
]


def tempered(logs: np.ndarray[Any, np.dtype[np.float64]], search: SearchParams) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The distribution that tokens are drawn from."""
    weights = np.exp((logs - logs.max()) / search.temperature)
    order = np.argsort(-weights, kind="stable")
    weights[order[search.sampling_topk or len(order) :]] = 0
    weights /= weights.sum()
    kept = int(np.searchsorted(weights[order].cumsum(), search.sampling_topp)) + 1
    weights[order[kept:]] = 0
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("options", SAMPLES, ids=str)
def test_first_tokens_are_drawn_from_the_models_distribution(
    options: dict[str, Any], translator: Translator, sources: list[list[int]], model: Transformer
) -> None:
    rows = [make_row(sources[0], 1, num_hypotheses=8, seed=seed, **options) for seed in range(150)]
    translator.run(rows)
    drawn = [(hypothesis.tokens or (END,))[0] for row in rows for hypothesis in row.hypotheses]
    exact = tempered(log_probabilities(model, sources[0], [END])[0].double().numpy(), rows[0].search)
    assert len(drawn) == 1_200
    counts = np.bincount(drawn, minlength=len(exact))
    assert counts[exact == 0].sum() == 0
    often = exact * len(drawn) >= 5
    assert often.sum() >= 4
    observed, wanted = np.append(counts[often], counts[~often].sum()), np.append(exact[often], exact[~often].sum()) * len(drawn)
    statistic = (np.square(observed - wanted) / np.maximum(wanted, 1)).sum()
    assert statistic < often.sum() + 4 * math.sqrt(2 * often.sum())


@pytest.mark.parametrize("options", SAMPLES[:4], ids=str)
def test_samples_know_their_probability(
    options: dict[str, Any], translator: Translator, sources: list[list[int]], model: Transformer
) -> None:
    """Scores of samples are the model's log-probabilities; temperature and the choice of candidates do not change them."""
    prefix = translator.tokenizer.encode([TARGETS[0]])[0][:2]
    rows = [make_row(source, LIMIT, start, num_hypotheses=3, seed=5, **options) for source in sources for start in ([], prefix)]
    translator.run(rows)
    for row in rows:
        assert [h.score for h in row.hypotheses] == sorted((h.score or 0.0 for h in row.hypotheses), reverse=True)
        for hypothesis in row.hypotheses:
            tokens = [*hypothesis.tokens, *([END] if hypothesis.finish is Finish.STOP else [])]
            each = token_log_probabilities(model, row.source, tokens)
            assert tuple(tokens[: len(row.prefix)]) == row.prefix
            assert hypothesis.log_probability == pytest.approx(sum(each), abs=TOLERANCE * len(tokens))
            assert hypothesis.score == pytest.approx(sum(each[len(row.prefix) :]) / len(tokens), abs=TOLERANCE)


def test_scores_of_given_translations(translator: Translator, model: Transformer) -> None:
    pairs = [*zip(SOURCES[:12], TARGETS[:12], strict=True), *zip(SOURCES[:12], TARGETS[5:17], strict=True)]
    scores = translator.score(pairs)
    for (source, target), score in zip(pairs, scores, strict=True):
        ids = translator.tokenizer.encode([source, target])
        each = token_log_probabilities(model, ids[0], ids[1])
        assert score.token_log_probabilities == pytest.approx(each, abs=TOLERANCE)
        assert score.log_probability == pytest.approx(sum(each), abs=TOLERANCE * len(each))


def test_a_translations_own_score(translator: Translator, sources: list[list[int]]) -> None:
    """A search gives a translation the same score as the scoring graph."""
    texts = [SOURCES[3], SOURCES[20]]
    rows = [make_row(ids, 60, beam_size=4, length_penalty=0.0) for ids in translator.tokenizer.encode(texts)]
    translator.run(rows)
    translations = translator.tokenizer.decode([row.tokens for row in rows])
    for row, score in zip(rows, translator.score(list(zip(texts, translations, strict=True))), strict=True):
        assert row.hypotheses[0].log_probability == pytest.approx(score.log_probability, abs=TOLERANCE * len(row.tokens))
