"""What all responses say of who made them, and how long it took."""

from typing import Any

from triptych.v1 import common_pb2
from triptych_serving.servicers.rpc import Use


def served_by(use: Use) -> dict[str, Any]:
    """The members `model`, `model_version` and `timing` of a response."""
    return {"model": use.model, "model_version": use.version, "timing": timing_of(use)}


def timing_of(use: Use) -> common_pb2.Timing:
    """Seconds of each stage; a translation's inference is its prefill and its decoding."""
    stages = use.stages
    began = min((start for start, _ in stages.values()), default=0.0)
    return common_pb2.Timing(
        queue_seconds=_seconds(use, "queue"),
        preprocess_seconds=_seconds(use, "preprocess"),
        inference_seconds=_seconds(use, "inference") + _seconds(use, "prefill") + _seconds(use, "decode"),
        postprocess_seconds=_seconds(use, "postprocess"),
        time_to_first_token_seconds=max(0.0, use.first_token - began) if use.first_token else 0.0,
    )


def _seconds(use: Use, stage: str) -> float:
    start, end = use.stages.get(stage, (0.0, 0.0))
    return max(0.0, end - start)
