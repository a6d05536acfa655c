"""Distributions of durations, and the confidence in a percentile."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from triptych_bench.results import Distribution

PERCENTS = ("50", "90", "95", "99", "99.9")
CURVE_POINTS = 160


def distribution(values: Iterable[float]) -> Distribution:
    """Summarize durations in seconds; without any, all figures are 0."""
    ordered = sorted(values)
    if not ordered:
        return Distribution(count=0, mean=0.0, minimum=0.0, maximum=0.0, percentiles=dict.fromkeys(PERCENTS, 0.0))
    return Distribution(
        count=len(ordered),
        mean=fmean(ordered),
        minimum=ordered[0],
        maximum=ordered[-1],
        percentiles={percent: percentile(ordered, float(percent)) for percent in PERCENTS},
        curve=_curve(ordered),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the smallest measured value that is not below `percent` of all values.

    Args:
        ordered: Ascending, at least one value.
        percent: 0 to 100.
    """
    # In thousandths: 0.99 x 100 is 99.00000000000001 in floating point, which would be the next rank.
    rank = -(-round(percent * 1_000) * len(ordered) // 100_000)
    return ordered[max(1, rank) - 1]


def _curve(ordered: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Choose as many points between 0.9 and 0.99 as between 0.99 and 0.999, at most one per value."""
    decades = math.log10(len(ordered))
    steps = range(CURVE_POINTS)
    ranks = [max(1, math.ceil((1 - 10 ** (-decades * step / CURVE_POINTS)) * len(ordered))) for step in steps]
    return tuple((rank / len(ordered), ordered[rank - 1]) for rank in dict.fromkeys([*ranks, len(ordered)]))


def confidence_within(requests: int, late: int, allowed: float) -> float:
    """Compute the confidence that at most a share of `allowed` of all possible requests is late.

    This is the early-stopping rule of MLPerf Inference: a run of the server scenario counts once this is 0.99 for an allowance
    of 0.01, which takes 459 requests if none was late, and 662 if one was.

    Args:
        requests: Number of observed, independent requests.
        late: How many of them were late.
        allowed: A share, such as 0.01 for a 99th percentile.

    Returns:
        1 minus the probability of so few late requests if exactly `allowed` of all were late; 0 to 1.
    """
    if not 0 < allowed < 1 or requests <= 0:
        return 0.0
    terms = (_log_binomial(requests, count, allowed) for count in range(late + 1))
    return max(0.0, 1.0 - math.fsum(math.exp(term) for term in terms))


def _log_binomial(requests: int, count: int, chance: float) -> float:
    ways = math.lgamma(requests + 1) - math.lgamma(count + 1) - math.lgamma(requests - count + 1)
    return ways + count * math.log(chance) + (requests - count) * math.log1p(-chance)
