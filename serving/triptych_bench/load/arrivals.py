"""When the requests of an open loop are due."""

import random
from collections.abc import Iterator


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Seconds since the start, without end: a Poisson process, as the server scenario of MLPerf Inference has it.

    The gaps come from the seed alone, so that a slow server cannot put off what comes after (coordinated omission).

    Args:
        rate: requests a second.
        seed: the same gives the same moments.
    """
    rng = random.Random(f"{rate!r} {seed}")
    now = 0.0
    while True:
        now += rng.expovariate(rate)
        yield now
