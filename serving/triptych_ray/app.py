"""The application for `serve run` and `serve deploy`: `triptych_ray.app:build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve

from triptych_ray.options import ReplicaOptions
from triptych_ray.replica import Replica

# Continuous batching needs many requests in one replica; Ray's own default is 5.
MAX_ONGOING_REQUESTS = 256
MAX_QUEUED_REQUESTS = 1_024  # in a proxy; further callers receive RESOURCE_EXHAUSTED
DRAIN_SECONDS = 60.0  # for requests in flight


def build(arguments: Mapping[str, Any]) -> serve.Application:
    """Build the application. The configuration file sets the number of replicas and their resources.

    Raises:
        ValueError: an argument is unknown, or a value is out of range.
    """
    deployment = serve.deployment(
        Replica,
        name="Triptych",
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        max_queued_requests=MAX_QUEUED_REQUESTS,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
    )
    return deployment.bind(ReplicaOptions.of(arguments))
