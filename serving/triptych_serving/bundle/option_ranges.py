"""The values that the decoding options may have, whoever sets them: a request, or a model's manifest.

The ends of the open ones are far beyond what anybody wants, and such that no power or quotient of them overflows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class _Range:
    text: str
    holds: Callable[[float], bool]


_COUNT = _Range("at least 1", lambda value: value >= 1)
_NATURAL = _Range("at least 0", lambda value: value >= 0)
_FACTOR = _Range("at least 0.001 and at most 1,000", lambda value: 0.001 <= value <= 1_000)
RANGES = {
    "beam_size": _COUNT,
    "patience": _Range("above 0 and at most 1,000", lambda value: 0 < value <= 1_000),
    "num_hypotheses": _COUNT,
    "length_penalty": _Range("at least -100 and at most 100", lambda value: -100 <= value <= 100),
    "coverage_penalty": _Range("at least 0 and at most 1,000", lambda value: 0 <= value <= 1_000),
    "repetition_penalty": _FACTOR,
    "no_repeat_ngram_size": _NATURAL,
    "min_length": _NATURAL,
    "max_length": _COUNT,
    "sampling_temperature": _FACTOR,
    "sampling_topk": _NATURAL,
    "sampling_topp": _Range("above 0 and at most 1", lambda value: 0 < value <= 1),
    "seed": _Range("at least 0 and below 2^64", lambda value: 0 <= value < 2**64),
}


def range_fault(name: str, value: float) -> str:
    """What is wrong with an option's value; empty if nothing is."""
    bounds = RANGES[name]
    if (isinstance(value, int) or math.isfinite(value)) and bounds.holds(value):
        return ""
    return f"{value} is out of range, it must be {bounds.text}"
