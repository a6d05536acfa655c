"""Ranked labels, and the range check of options such as `top_k`; shared by the text and image models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triptych_serving.errors import InvalidInputError
from triptych_serving.runtime.session import Array


@dataclass(frozen=True, slots=True)
class ScoredLabel:
    """One of a model's labels."""

    label: str
    score: float  # probability, or logit if raw scores were requested
    index: int  # the label's number in the model


def rank_labels(probabilities: Array, labels: Sequence[str], top_k: int | None) -> tuple[ScoredLabel, ...]:
    """Return the best labels, best first; equal ones in the model's order."""
    order = np.argsort(-probabilities, kind="stable")[:top_k]
    return tuple(ScoredLabel(labels[index], float(probabilities[index]), int(index)) for index in order)


def check_range(name: str, value: int, lowest: int, highest: int | None = None) -> int:
    """Return the value if it is in range. Raises InvalidInputError: it is out of range."""
    if value < lowest or (highest is not None and value > highest):
        bounds = f"at least {lowest:,}" if highest is None else f"{lowest:,} to {highest:,}"
        raise InvalidInputError(name, f"{value:,} is out of range, it must be {bounds}")
    return value
