"""How sure a percentile is, after so many requests."""

import math


def confidence_within(requests: int, late: int, allowed: float) -> float:
    """How sure it is that no more than `allowed` of all requests there could be are late, after `late` of `requests` were.

    The early-stopping rule of MLPerf Inference: a run of the server scenario counts once this is 0.99 for an allowance of 0.01,
    which takes 459 requests where none was late, and 662 where one was.

    Args:
        requests: that were observed, independent of each other.
        late: how many of them.
        allowed: a fraction, such as 0.01 for a 99th percentile.

    Returns:
        1 minus the chance to see so few late ones if just `allowed` of all were; 0 to 1.
    """
    if not 0 < allowed < 1 or requests <= 0:
        return 0.0
    terms = (_log_chance(requests, count, allowed) for count in range(late + 1))
    return max(0.0, 1.0 - math.fsum(math.exp(term) for term in terms))


def _log_chance(requests: int, count: int, chance: float) -> float:
    """Of a binomial distribution."""
    ways = math.lgamma(requests + 1) - math.lgamma(count + 1) - math.lgamma(requests - count + 1)
    return ways + count * math.log(chance) + (requests - count) * math.log1p(-chance)
