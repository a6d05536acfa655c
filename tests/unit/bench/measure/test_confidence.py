"""How sure a percentile is."""

import math

import pytest

from triptych_bench.measure.confidence import confidence_within


@pytest.mark.parametrize(("requests", "late"), [(459, 0), (662, 1)])
def test_mlperfs_least_numbers_of_queries(requests: int, late: int) -> None:
    """Of the 99th percentile with a confidence of 99 %, as its rules' table for early stopping has them."""
    assert confidence_within(requests, late, 0.01) >= 0.99
    assert confidence_within(requests - 1, late, 0.01) < 0.99


@pytest.mark.parametrize("late", [0, 1, 3])
def test_it_is_one_minus_the_sum_of_a_binomial_distribution(late: int) -> None:
    chance = sum(math.comb(50, count) * 0.1**count * 0.9 ** (50 - count) for count in range(late + 1))
    assert math.isclose(confidence_within(50, late, 0.1), 1 - chance)


def test_no_requests_are_no_evidence() -> None:
    assert confidence_within(0, 0, 0.01) == 0.0
    assert confidence_within(10, 10, 0.01) == pytest.approx(0.0, abs=1e-9)
