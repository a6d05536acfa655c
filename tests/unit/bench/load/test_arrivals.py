"""Moments of open loops."""

import math
from itertools import islice, pairwise

from triptych_bench.load.arrivals import poisson


def test_gaps_are_those_of_a_poisson_process() -> None:
    moments = list(islice(poisson(50.0, seed=1), 20_000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *moments])]
    assert all(gap > 0 for gap in gaps)
    mean = math.fsum(gaps) / len(gaps)
    assert math.isclose(mean, 1 / 50, rel_tol=0.03)
    # Of an exponential distribution the standard deviation is the mean, and 1/e of all gaps are longer than it.
    deviation = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert math.isclose(deviation, mean, rel_tol=0.05)
    assert math.isclose(sum(gap > mean for gap in gaps) / len(gaps), 1 / math.e, rel_tol=0.05)


def test_the_seed_says_it_all() -> None:
    first, again, other = (list(islice(poisson(10.0, seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
