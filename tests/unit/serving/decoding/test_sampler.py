"""Samples compared with exact distributions; seeds are fixed, so that results are deterministic."""

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

from triptych_serving.decoding.sampler import Sampler

PROBABILITIES = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01])
LOGS = np.log(PROBABILITIES).astype(np.float32)
DRAWS = 4_000


def frequencies(
    logs: NDArray[np.floating], temperature: float = 1.0, topk: int = 0, topp: float = 1.0, draws: int = DRAWS
) -> NDArray[np.float64]:
    sampler = Sampler(3, 0)
    drawn = [sampler.choose(logs, temperature, topk, topp) for _ in range(draws)]
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


def test_tokens_are_drawn_by_their_probability() -> None:
    assert_distributed(frequencies(LOGS), PROBABILITIES)


def test_logits_may_be_shifted() -> None:
    assert_distributed(frequencies(LOGS + 17), PROBABILITIES)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature(temperature: float) -> None:
    assert_distributed(frequencies(LOGS, temperature), normalized(PROBABILITIES ** (1 / temperature)))


@pytest.mark.parametrize("topk", [1, 3, 7, 1_000])
def test_top_k(topk: int) -> None:
    assert_distributed(frequencies(LOGS, topk=topk), only(topk))


@pytest.mark.parametrize(("topp", "count"), [(1e-9, 1), (0.39, 1), (0.41, 2), (0.66, 3), (0.985, 6), (0.9999, 7)])
def test_top_p(topp: float, count: int) -> None:
    assert_distributed(frequencies(LOGS, topp=topp), only(count))


def test_temperature_then_top_k_then_top_p() -> None:
    weights = np.sqrt(PROBABILITIES)
    kept = normalized(weights[:4]).cumsum()
    assert kept[1] < 0.7 < kept[2]
    assert_distributed(frequencies(LOGS, 2.0, 4, 0.7), only(3, weights))


def test_the_order_of_tokens_does_not_matter() -> None:
    order = np.array([3, 6, 0, 5, 1, 4, 2])
    for topk, topp, count in ((0, 1.0, 7), (3, 1.0, 3), (0, 0.66, 3), (4, 0.75, 3)):
        assert_distributed(frequencies(LOGS[order], 1.0, topk, topp), only(count)[order])


@pytest.mark.parametrize(("topk", "topp"), [(0, 1.0), (0, 0.5), (0, 0.97), (500, 1.0), (500, 0.9)])
def test_a_large_vocabulary(topk: int, topp: float) -> None:
    """One so flat that the nucleus exceeds the tokens sorted first, and one so steep that it does not."""
    for slope in (0.0005, 0.05):
        weights = normalized(np.exp(-slope * np.arange(2_000)))
        order = np.random.default_rng(1).permutation(2_000)
        count = topk or 2_000
        if topp < 1:
            count = int(np.searchsorted(normalized(weights[:count]).cumsum(), topp)) + 1
        found = frequencies(np.log(weights[order]).astype(np.float32), 1.0, topk, topp, draws=1_000)
        places = np.argsort(order)
        assert found[places[count:]].sum() == 0
        # A hundred bins: single tokens are drawn too rarely to compare.
        bins = np.arange(count) * 100 // count
        compare = np.bincount(bins, found[places[:count]]), np.bincount(bins, normalized(weights[:count]))
        seen = compare[1] > 1e-3
        assert np.abs(compare[0] - compare[1])[seen].max() < 5 * np.sqrt(compare[1].max() / 1_000)


def test_ties_keep_the_earlier_tokens() -> None:
    flat = np.zeros(8, np.float32)
    assert_distributed(frequencies(flat, topk=3), only(3, np.ones(8)))
    assert_distributed(frequencies(flat, topp=0.5), only(4, np.ones(8)))


@pytest.mark.parametrize("temperature", [1e-6, 1e-300])
def test_a_temperature_near_zero_takes_the_likeliest(temperature: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert frequencies(LOGS[::-1], temperature, draws=20)[-1] == 1


def test_banned_tokens_are_never_drawn() -> None:
    logs = LOGS.copy()
    logs[[0, 3]] = -1e9
    expected = np.where(np.isin(np.arange(7), [0, 3]), 0, PROBABILITIES)
    assert_distributed(frequencies(logs), normalized(expected))


def draws(sampler: Sampler, count: int = 50) -> list[int]:
    return [sampler.choose(LOGS, 1.0, 0, 1.0) for _ in range(count)]


def test_a_seed_is_reproducible() -> None:
    assert draws(Sampler(2**64 - 1, 2)) == draws(Sampler(2**64 - 1, 2))


def test_seeds_and_hypotheses_differ() -> None:
    rows = [draws(Sampler(seed, index)) for seed in (0, 1, 2**63) for index in (0, 1)]
    assert len({tuple(row) for row in rows}) == len(rows)


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
