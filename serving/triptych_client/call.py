"""The identity, deadline and retries of one request."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import grpc

from triptych_client.connection import RpcMethod
from triptych_client.errors import (
    CallCancelledError,
    DeadlineExceededError,
    ResourceExhaustedError,
    TriptychClientError,
    UnavailableError,
)
from triptych_client.status import LASTING_TLS_FAILURES

logger = logging.getLogger("triptych_client")

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
GRPC_DEADLINE = "Deadline Exceeded"  # in gRPC's own message, which names no setting


@dataclass(frozen=True, slots=True)
class Call:
    """One request. A user's call may send several with the same ID; each may take several attempts."""

    request_id: str
    timeout_seconds: float
    retries: int | None = None
    """Further attempts; None: as many as the deadline allows."""
    first_input: int = 0
    """Index of the request's first input among the user's inputs."""
    input_count: int = 0
    api_key: str = field(default="", repr=False)
    hint: str = ""
    """Added to the error of an unreachable server."""
    running: WeakSet[Any] | None = field(default=None, repr=False, compare=False)
    """The client's calls, which its `close` cancels; None if the channel itself cancels them."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The gRPC metadata to send."""
        key = (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()
        return (("x-request-id", self.request_id), *key)

    def start(self, kind: Any, method: RpcMethod[Any, Any], requests: Any, timeout: float | None = None) -> Any:
        """Start one attempt and return gRPC's call.

        Args:
            kind: A method of a channel, such as `channel.unary_stream`.

        Raises:
            CallCancelledError: The client is closed.
        """
        send = kind(method.path, **method.codec)
        try:
            started = getattr(send, "future", send)(requests, timeout=timeout, metadata=self.metadata)
        except (ValueError, grpc.aio.UsageError) as error:
            if "closed" not in str(error):
                raise
            raise self.cancelled() from None
        if self.running is not None:
            self.running.add(started)
        return started

    def cancelled(self) -> CallCancelledError:
        """Make the error of a call that this client has cancelled."""
        return CallCancelledError("the client, or the stream, was closed", code="CANCELLED", request_id=self.request_id)

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Raise CallCancelledError if the call is cancelled, and not its task: grpc.aio does not distinguish."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self.cancelled() from None

    def explained(self, error: TriptychClientError) -> TriptychClientError:
        """Add to an error what the client knows: the address's origin, or the timeout that has passed."""
        if isinstance(error, UnavailableError):
            error.message += self.hint
        elif isinstance(error, DeadlineExceededError) and GRPC_DEADLINE in error.message:
            error.message += f"; it was not complete within {self.timeout_seconds:g} s (`timeout_seconds`)"
        return error


def is_transient(error: TriptychClientError) -> bool:
    """Return whether the same request may succeed a little later."""
    # Without a delay, RESOURCE_EXHAUSTED means a size or a quota, which waiting does not change.
    has_delay = isinstance(error, ResourceExhaustedError) and error.retry_delay_seconds is not None
    lasts = any(part in error.message for part in LASTING_TLS_FAILURES)
    return (isinstance(error, UnavailableError) and not lasts) or has_delay


class Attempts:
    """The remaining attempts of one request, and its remaining time."""

    def __init__(self, call: Call, clock: Callable[[], float] = time.monotonic, deadline: float | None = None) -> None:
        self._call = call
        self._failures = 0
        self._clock = clock
        self._deadline = clock() + call.timeout_seconds if deadline is None else deadline
        self._longest = FIRST_PAUSE_SECONDS

    def remaining_seconds(self) -> float:
        """The timeout of the next attempt."""
        return max(0.0, self._deadline - self._clock())

    def pause_after(self, error: TriptychClientError) -> float:
        """Count an attempt and return the seconds to wait before the next one.

        Raises:
            TriptychClientError: `error` itself, if it is not transient, no retry is left or the deadline would pass.
        """
        self._call.explained(error)
        if self._failures == self._call.retries or not is_transient(error):
            raise error
        delay = error.retry_delay_seconds or 0.0
        left = self.remaining_seconds() - delay
        if left < FIRST_PAUSE_SECONDS:
            raise error
        pause = delay + min(self._next_pause(), left / 2)  # shorter pauses before the deadline, so that none is beyond it
        self._failures += 1
        logger.info("%s; next attempt in %.1f s", error, pause)
        return pause

    def _next_pause(self) -> float:
        # Half of the pause is random, so that clients that failed together do not return together.
        pause = self._longest * random.uniform(0.5, 1.0)
        self._longest = min(2 * self._longest, LONGEST_PAUSE_SECONDS)
        return pause
