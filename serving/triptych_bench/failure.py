"""Calls that failed, as the load generator sees them."""

import time
from typing import Any, TypeAlias

from triptych_bench.target import Outcome

RpcError: TypeAlias = Any  # grpc's, of blocking calls or of asyncio's: both tell their status


def failed(error: RpcError, sent: float) -> Outcome:
    """A request that was sent at that moment and ended just now."""
    return Outcome(error.code().name, sent, time.perf_counter(), message=details(error))


def reason(error: RpcError) -> str:
    """Status and message, on one line."""
    return f"{error.code().name}: {details(error)}"


def details(error: RpcError) -> str:
    """What the server says of it, on one line."""
    return " ".join((error.details() or "no details").split())
