"""How much a server is asked at once: more while it answers, half as much when it says that it is full (as TCP does)."""

import random
import time
from collections.abc import Callable

from triptych_client import TriptychClientError
from triptych_embedded.request import BackendError

FIRST_CALLS = 2.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 10.0


class Pressure:
    """Of one thread.

    Args:
        most: calls at once.
        patience_seconds: since the last answer; then a server that refuses is given up.
        clock: monotonic seconds.
    """

    def __init__(self, most: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(most)
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._calls = min(FIRST_CALLS, self._most)
        self._longest = FIRST_PAUSE_SECONDS
        self._since: float | None = None  # the first refusal after the last answer
        self._paused_until = 0.0

    def room(self) -> int:
        """How many calls may be under way now."""
        return 0 if self.pause_seconds() else int(self._calls)

    def pause_seconds(self) -> float:
        """Until calls may be sent again; 0: now."""
        return max(0.0, self._paused_until - self._clock())

    def succeeded(self) -> None:
        """A call was answered."""
        self._since = None
        self._longest = FIRST_PAUSE_SECONDS
        self._calls = min(self._most, self._calls + 1 / self._calls)

    def refused(self, error: TriptychClientError) -> None:
        """A call found the server full or away, and is to be sent again.

        Raises:
            BackendError: that has been so for too long.
        """
        now = self._clock()
        if self._paused_until > now:  # of the calls that were sent together, the first one counts
            return
        self._since = now if self._since is None else self._since
        if now - self._since > self._patience_seconds:
            raise BackendError(f"no answer for {now - self._since:,.0f} s: {error}") from error
        self._calls = max(1.0, self._calls / 2)
        pause = (error.retry_delay_seconds or 0.0) + self._longest * random.uniform(0.5, 1.0)
        self._longest = min(2 * self._longest, LONGEST_PAUSE_SECONDS)
        self._paused_until = now + pause
