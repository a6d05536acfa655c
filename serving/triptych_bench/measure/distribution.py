"""Distributions of durations."""

import math
from collections.abc import Iterable, Sequence

from triptych_bench.results import Distribution

PERCENTS = ("50", "90", "95", "99", "99.9")
CURVE_POINTS = 160


def distribution(values: Iterable[float]) -> Distribution:
    """Of durations in seconds; of none all is 0."""
    ordered = sorted(values)
    if not ordered:
        return Distribution(count=0, mean=0.0, minimum=0.0, maximum=0.0, percentiles=dict.fromkeys(PERCENTS, 0.0))
    return Distribution(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        minimum=ordered[0],
        maximum=ordered[-1],
        percentiles={percent: percentile(ordered, float(percent)) for percent in PERCENTS},
        curve=_curve(ordered),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that is not below `percent` of all; never one that was not measured.

    Args:
        ordered: ascending, at least one.
        percent: 0 to 100.
    """
    # In parts of a thousand: 0.99 x 100 is 99.00000000000001 for a computer, which would be the next rank.
    rank = -(-round(percent * 1_000) * len(ordered) // 100_000)
    return ordered[max(1, rank) - 1]


def _curve(ordered: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """As many points between 0.9 and 0.99 as between 0.99 and 0.999; no further than there are values."""
    decades = math.log10(len(ordered))
    points: dict[int, None] = {}  # ranks, in order, each once
    for step in range(CURVE_POINTS):
        rank = math.ceil((1 - 10 ** (-decades * step / CURVE_POINTS)) * len(ordered))
        points[max(1, rank)] = None
    points[len(ordered)] = None
    return tuple((rank / len(ordered), ordered[rank - 1]) for rank in points)
