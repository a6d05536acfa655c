"""Distributions, percentiles and the confidence in them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from triptych_bench.measure.distribution import confidence_within, distribution, percentile

DURATIONS = some.lists(some.floats(0, 1_000, allow_subnormal=False), min_size=1, max_size=300)


@pytest.mark.parametrize(
    ("count", "percent", "rank"), [(100, 99, 99), (100, 99.9, 100), (1_000, 99.9, 999), (10, 90, 9), (1, 50, 1)]
)
def test_nearest_rank(count: int, percent: float, rank: int) -> None:
    assert percentile(list(map(float, range(1, count + 1))), percent) == rank


@given(DURATIONS, some.floats(0.1, 100))
def test_a_percentile_bounds_its_share_of_values(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    assert found in ordered
    share = round(percent * 1_000) / 100_000
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < share * len(ordered) + 1e-6 or found == ordered[0]


@given(DURATIONS)
def test_the_curve_rises_to_the_maximum(values: list[float]) -> None:
    found = distribution(values)
    fractions, seconds = zip(*found.curve, strict=True)
    assert list(fractions) == sorted(set(fractions))
    assert list(seconds) == sorted(seconds)
    assert found.curve[-1] == (1.0, found.maximum)
    assert len(found.curve) <= 200
    assert found.minimum <= found.mean + 1e-9
    assert math.isclose(found.mean, sum(values) / len(values), abs_tol=1e-9)


def test_the_curve_is_dense_towards_the_end_unless_it_is_empty() -> None:
    found = distribution(map(float, range(100_000)))
    for least, most in ((0.9, 0.99), (0.99, 0.999), (0.999, 0.9999)):
        assert sum(least <= fraction < most for fraction, _ in found.curve) >= 20
    found = distribution([])
    assert (found.count, found.mean, found.percentiles["99"], found.curve) == (0, 0.0, 0.0, ())
    assert confidence_within(0, 0, 0.01) == 0.0
    assert confidence_within(10, 10, 0.01) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("requests", "late"), [(459, 0), (662, 1)])
def test_minimum_numbers_of_queries_of_mlperf(requests: int, late: int) -> None:
    """Compare with the rules' table for early stopping: 99th percentile, confidence 99 %."""
    assert confidence_within(requests, late, 0.01) >= 0.99
    assert confidence_within(requests - 1, late, 0.01) < 0.99


@pytest.mark.parametrize("late", [0, 1, 3])
def test_confidence_is_one_minus_a_binomial_sum(late: int) -> None:
    chance = sum(math.comb(50, count) * 0.1**count * 0.9 ** (50 - count) for count in range(late + 1))
    assert math.isclose(confidence_within(50, late, 0.1), 1 - chance)
