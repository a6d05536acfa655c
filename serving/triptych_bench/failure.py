"""Calls that failed, as the load generator sees them."""

import time

from grpc import aio

from triptych_bench.target import Outcome


def failed(error: aio.AioRpcError, sent: float) -> Outcome:
    """A request that was sent at that moment and ended just now."""
    return Outcome(error.code().name, sent, time.perf_counter(), message=details(error))


def reason(error: aio.AioRpcError) -> str:
    """Status and message, on one line."""
    return f"{error.code().name}: {details(error)}"


def details(error: aio.AioRpcError) -> str:
    """What the server says of it, on one line."""
    return " ".join((error.details() or "no details").split())
