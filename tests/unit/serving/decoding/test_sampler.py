"""Samples compared with exact distributions; seeds are fixed, so that results are deterministic."""

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from triptych_serving.decoding.sampler import Sampler
from triptych_serving.runtime.native.library import LEVEL

PROBABILITIES = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01])
LOGS = np.log(PROBABILITIES).astype(np.float32)
DRAWS = 1_500
Floats = NDArray[np.floating]


@pytest.fixture(autouse=True, params=["off", "", "avx2", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws are those of numpy, or of a path of the kernels where they are installed."""
    monkeypatch.setenv(LEVEL, request.param)


def frequencies(
    logs: Floats, temperature: float = 1.0, topk: int = 0, topp: float = 1.0, minp: float = 0.0, draws: int = DRAWS
) -> NDArray[np.float64]:
    sampler = Sampler(3, 0)
    drawn = [sampler.choose(logs, temperature, topk, topp, minp) for _ in range(draws)]
    return np.bincount(drawn, minlength=len(logs)) / draws


def assert_distributed(found: NDArray[np.float64], expected: NDArray[np.float64], draws: int = DRAWS) -> None:
    """Check that Pearson's chi-square is below its mean plus four deviations, and impossible tokens never occur."""
    possible = expected > 0
    assert found[~possible].sum() == 0
    degrees = possible.sum() - 1
    statistic = draws * (np.square(found - expected)[possible] / expected[possible]).sum()
    assert statistic <= degrees + 4 * np.sqrt(2 * degrees) + 1e-12


def normalized(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(weights / weights.sum())


def only(count: int, weights: NDArray[np.float64] = PROBABILITIES) -> NDArray[np.float64]:
    return normalized(np.where(np.arange(len(weights)) < count, weights, 0))


BANNED = np.where(np.isin(np.arange(7), [0, 3]), -1e9, LOGS)
FLAT = np.zeros(8, np.float32)


@pytest.mark.parametrize(
    ("logs", "options", "expected"),
    [
        pytest.param(LOGS, {}, PROBABILITIES, id="by probability"),
        pytest.param(LOGS + 17, {}, PROBABILITIES, id="shifted logits"),
        pytest.param(BANNED, {}, normalized(np.where(BANNED < -100, 0, PROBABILITIES)), id="banned tokens"),
        *[(LOGS, {"temperature": heat}, normalized(PROBABILITIES ** (1 / heat))) for heat in (0.5, 2.0)],
        *[(LOGS, {"topk": topk}, only(topk)) for topk in (1, 3, 7, 1_000)],
        *[
            (LOGS, {"topp": topp}, only(count))
            for topp, count in ((1e-9, 1), (0.39, 1), (0.41, 2), (0.66, 3), (0.985, 6), (0.9999, 7))
        ],
        *[(LOGS, {"minp": minp}, only(count)) for minp, count in ((1e-9, 7), (0.1, 5), (0.3, 3), (1.0, 1))],
        *[(LOGS, {"minp": 0.2, **limits}, only(count)) for limits, count in (({"topk": 2}, 2), ({"topk": 6}, 4))],
        *[(LOGS, {"minp": 0.2, "topp": topp}, only(count)) for topp, count in ((0.5, 2), (0.99, 4))],
        pytest.param(LOGS, {"temperature": 2.0, "minp": 0.45}, only(4, np.sqrt(PROBABILITIES)), id="min p after heat"),
        pytest.param(LOGS, {"temperature": 2.0, "topk": 4, "topp": 0.7}, only(3, np.sqrt(PROBABILITIES)), id="in this order"),
        pytest.param(FLAT, {"topk": 3}, only(3, np.ones(8)), id="of equal tokens the earlier, top k"),
        pytest.param(FLAT, {"topp": 0.5}, only(4, np.ones(8)), id="of equal tokens the earlier, top p"),
    ],
)
def test_tokens_are_drawn_by_their_probability(logs: Floats, options: dict[str, Any], expected: NDArray[np.float64]) -> None:
    """Temperature comes first, then the likeliest tokens."""
    assert_distributed(frequencies(logs, **options), expected)


def test_the_order_of_tokens_does_not_matter() -> None:
    order = np.array([3, 6, 0, 5, 1, 4, 2])
    for topk, topp, count in ((0, 1.0, 7), (3, 1.0, 3), (4, 0.75, 3)):
        assert_distributed(frequencies(LOGS[order], 1.0, topk, topp), only(count)[order])


@pytest.mark.parametrize(("topk", "topp"), [(0, 1.0), (0, 0.97), (500, 0.9)])
def test_a_large_vocabulary(topk: int, topp: float) -> None:
    """One so flat that the nucleus exceeds the tokens sorted first, and one so steep that it does not."""
    for slope in (0.0005, 0.05):
        weights = normalized(np.exp(-slope * np.arange(2_000)))
        order = np.random.default_rng(1).permutation(2_000)
        count = topk or 2_000
        if topp < 1:
            count = int(np.searchsorted(normalized(weights[:count]).cumsum(), topp)) + 1
        found = frequencies(np.log(weights[order]).astype(np.float32), 1.0, topk, topp, draws=500)
        places = np.argsort(order)
        assert found[places[count:]].sum() == 0
        # A hundred bins: single tokens are drawn too rarely to compare.
        bins = np.arange(count) * 100 // count
        compare = np.bincount(bins, found[places[:count]]), np.bincount(bins, normalized(weights[:count]))
        seen = compare[1] > 1e-3
        assert np.abs(compare[0] - compare[1])[seen].max() < 5 * np.sqrt(compare[1].max() / 500)


@pytest.mark.parametrize("temperature", [1e-6, 1e-300])
def test_a_temperature_near_zero_takes_the_likeliest(temperature: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert frequencies(LOGS[::-1], temperature, draws=20)[-1] == 1


def draws(sampler: Sampler, count: int = 50) -> list[int]:
    return [sampler.choose(LOGS, 1.0, 0, 1.0) for _ in range(count)]


def test_seeds_are_reproducible_and_seeds_and_hypotheses_differ() -> None:
    rows = [draws(Sampler(seed, index)) for seed in (0, 1, 2**64 - 1) for index in (0, 1)]
    assert len({tuple(row) for row in rows}) == len(rows)
    assert rows[-1] == draws(Sampler(2**64 - 1, 1))


def test_samplers_are_independent() -> None:
    alone = draws(Sampler(5, 1))
    sampler, other = Sampler(5, 1), Sampler(5, 0)
    mixed = []
    for _ in range(50):
        other.choose(LOGS, 1.0, 3, 0.5)
        mixed += draws(sampler, 1)
    assert mixed == alone


def test_each_token_takes_one_random_number() -> None:
    """Options of one draw do not change later draws."""
    first, second = Sampler(5, 0), Sampler(5, 0)
    first.choose(LOGS, 1.0, 1, 1.0)
    second.choose(LOGS[:2], 0.1, 0, 0.3)
    assert draws(first) == draws(second)


@pytest.mark.parametrize(("logit", "topp"), [(np.nan, 0.9), (-np.inf, 0.9), (1.0, 1e-30)])
def test_the_first_token_is_drawn_where_none_is_the_likeliest(logit: float, topp: float) -> None:
    """A broken model's logits may be no numbers; drawn tokens are never outside of them."""
    sampler = Sampler(5, 0)
    sampler.choose(np.arange(5_000, dtype=np.float32), 1.0, 0, 0.9)  # leaves what a draw must not read
    assert sampler.choose(np.full(5, logit, np.float32), 1.0, 0, topp) == 0
    assert 0 <= sampler.choose(np.full(5, logit, np.float32), 1.0, 0, 1.0) < 5


@pytest.mark.parametrize("size", [1, 50, 1_030, 5_000])
@pytest.mark.parametrize(("topk", "topp"), [(0, 1.0), (0, 0.9), (7, 1.0), (40, 0.6), (0, 1e-9), (0, 0.99999)])
def test_kernels_draw_what_numpy_draws(monkeypatch: pytest.MonkeyPatch, size: int, topk: int, topp: float) -> None:
    logits = 3 * np.random.default_rng(size).standard_normal(size).astype(np.float32)
    logits[size // 2 : size // 2 + 9] = logits.max()  # equal ones
    logits[3::5] = -1e9
    found = [Sampler(seed, 0).choose(logits, 0.8, topk, topp) for seed in range(40)]
    monkeypatch.setenv(LEVEL, "off")
    assert [Sampler(seed, 0).choose(logits, 0.8, topk, topp) for seed in range(40)] == found
