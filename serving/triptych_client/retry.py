"""When a failed call is tried again."""

import random
import time
from collections.abc import Callable

from triptych_client.errors import ResourceExhaustedError, TriptychClientError, UnavailableError
from triptych_client.tls_faults import is_lasting

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


def is_transient(error: TriptychClientError) -> bool:
    """Whether the same request may succeed a little later."""
    # Without a delay, RESOURCE_EXHAUSTED is a size or a quota, which waiting does not change.
    asked_back = isinstance(error, ResourceExhaustedError) and error.retry_delay_seconds is not None
    return (isinstance(error, UnavailableError) and not is_lasting(error.message)) or asked_back


class Attempts:
    """The attempts at one call: how many are left, and how much time."""

    def __init__(self, retries: int, timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._retries = retries
        self._clock = clock
        self._deadline = clock() + timeout_seconds
        self._longest = FIRST_PAUSE_SECONDS

    def remaining_seconds(self) -> float:
        """The time limit of the next attempt."""
        return max(0.0, self._deadline - self._clock())

    def pause_after(self, error: TriptychClientError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            TriptychClientError: `error` itself, where it is not transient, no retry is left, or the deadline would pass.
        """
        if self._retries == 0 or not is_transient(error):
            raise error
        pause = self._next_pause() + (error.retry_delay_seconds or 0.0)
        if pause >= self.remaining_seconds():
            raise error
        self._retries -= 1
        return pause

    def _next_pause(self) -> float:
        # Half of it is chance, so that clients that failed together do not come back together.
        pause = self._longest * random.uniform(0.5, 1.0)
        self._longest = min(2 * self._longest, LONGEST_PAUSE_SECONDS)
        return pause
