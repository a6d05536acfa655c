"""Scored labels to the wire."""

from collections.abc import Iterable

from triptych.v1 import common_pb2
from triptych_serving.models.labels import ScoredLabel


def labels_to(labels: Iterable[ScoredLabel]) -> list[common_pb2.ScoredLabel]:
    """Best first, as they came."""
    return [common_pb2.ScoredLabel(label=one.label, score=one.score, index=one.index) for one in labels]
