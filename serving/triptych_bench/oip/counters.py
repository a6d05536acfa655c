"""What a server has counted of a model: ModelStatistics, of Triton's statistics extension."""

import math
from collections.abc import Iterable

from triptych.inference import open_inference_pb2 as pb

STAGES = {"queue": "queue", "preprocess": "compute_input", "compute": "compute_infer", "postprocess": "compute_output"}


def counters(models: Iterable[pb.ModelStatistics]) -> dict[str, float]:
    """Of all versions together; seconds."""
    stats = [model.inference_stats for model in models]
    return {
        "requests": float(sum(one.success.count for one in stats)),
        "failures": float(sum(one.fail.count for one in stats)),
        "total": math.fsum(one.success.ns for one in stats) / 1e9,
        "cached": float(sum(one.cache_hit.count for one in stats)),
        **{name: math.fsum(getattr(one, field).ns for one in stats) / 1e9 for name, field in STAGES.items()},
    }
