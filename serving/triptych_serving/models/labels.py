"""Ranked labels, shared by the models of several tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
