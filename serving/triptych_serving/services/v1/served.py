"""What all responses say of who made them, and how long it took."""

from typing import Any

from triptych.v1 import common_pb2
from triptych_serving.rpc.call_context import ModelUse


def served_by(use: ModelUse) -> dict[str, Any]:
    """The members `model`, `model_version` and `timing` of a response."""
    return {"model": use.model, "model_version": use.version, "timing": timing_of(use)}


def timing_of(use: ModelUse) -> common_pb2.Timing:
    """Seconds of each stage; a translation's inference is its prefill and its decoding."""
    took = {stage: max(0.0, end - start) for stage, (start, end) in use.stages.items()}
    seconds = took.get
    began = min(use.stages.values(), default=(0.0, 0.0))[0]
    return common_pb2.Timing(
        queue_seconds=seconds("queue", 0.0),
        preprocess_seconds=seconds("preprocess", 0.0),
        inference_seconds=seconds("inference", 0.0) + seconds("prefill", 0.0) + seconds("decode", 0.0),
        postprocess_seconds=seconds("postprocess", 0.0),
        time_to_first_token_seconds=max(0.0, use.first_token - began) if use.first_token else 0.0,
    )
