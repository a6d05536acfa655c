"""Forecasts: how long a call would take that joins a queue now. No clock, no threads.

The wait is the work ahead divided by the rate of late. Only time in which some row waited counts for the rate: a queue
that is empty now and then does not show how fast the engine could be.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

WINDOW_SECONDS = 4.0  # time constant of the rate, in seconds with rows waiting
LEAST_SECONDS = 0.25  # with rows waiting; after less there is no forecast
FORGET_SECONDS = 60.0  # without rows taken; the next requests may be different ones
SERVICE_SAMPLES = 64  # of the moving average of the service time
LEAST_SAMPLES = 4  # after fewer there is no forecast
SLOW = 1.5  # mean deviations added to the average service time
QUICK = 0.25  # share of the average service time
RISE, FALL, GREATEST = 0.04, 0.001, 3.0  # of the factor by which forecasts are stretched
KEPT = 0.95  # weight of earlier texts against that of the latest call


@dataclass(frozen=True)
class Forecast:
    """Expected times of a call that joins a queue now, in seconds."""

    wait: float  # until its last row leaves the queue
    service: float  # from there to the result, on the slow side

    @property
    def total(self) -> float:
        """Seconds until the result."""
        return self.wait + self.service

    def stretched(self, factor: float) -> "Forecast":
        """Multiply both times."""
        return Forecast(self.wait * factor, self.service * factor)


class Caution:
    """Safety factor of forecasts: it rises with each call that was late, and falls with each that was not.

    Under load it settles where about `FALL / RISE` of the accepted calls are late.
    """

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1.0

    def add(self, in_time: bool) -> None:
        """Learn from a call that has ended."""
        factor = self.factor * ((1 - FALL) if in_time else (1 + RISE))
        self.factor = min(GREATEST, max(1.0, factor))


class ExpectedCall(NamedTuple):
    """Estimated size of a call before tokenization, and of the calls that are being tokenized before it."""

    rows: int = 1
    tokens: int = 0  # of all rows; 0: unknown
    calls_ahead: int = 0
    tokens_ahead: int = 0
    greedy: bool = True  # how its rows are decoded; only the decode engine reads it
    field: str = "contents"  # the request's field, for error messages


class IncomingTexts:
    """Calls that are being tokenized; estimates their tokens from the characters of earlier calls.

    For the event loop only: not thread-safe.
    """

    def __init__(self) -> None:
        self._characters = 0.0
        self._tokens = 0.0
        self._calls_now = 0
        self._tokens_now = 0

    def expect(self, rows: int, characters: int) -> ExpectedCall:
        """Estimate the size of a call of `rows` texts with `characters` in all."""
        tokens = round(characters * self._tokens / self._characters) if self._characters else 0
        return ExpectedCall(rows, tokens, self._calls_now, self._tokens_now)

    @contextmanager
    def hold(self, expected: ExpectedCall) -> Iterator[None]:
        """Count a call as being tokenized."""
        self._calls_now += 1
        self._tokens_now += expected.tokens
        try:
            yield
        finally:
            self._calls_now -= 1
            self._tokens_now -= expected.tokens

    def learn(self, tokens: int, characters: int) -> None:
        """Learn from a tokenized call."""
        self._tokens = KEPT * self._tokens + tokens
        self._characters = KEPT * self._characters + characters


class WaitEstimator:
    """Moving averages of one queue: tokens a second while rows wait, and seconds from a row's turn to its result.

    At five times the capacity the simulated engines of `test_overload` keep 0.87 to 1.26 of it as results in time. A
    regression of the service time on the number of running rows kept 0.91 to 1.27, for three times the code.
    """

    __slots__ = ("_deviation", "_last", "_left", "_samples", "_seconds", "_service", "_tokens")

    def __init__(self) -> None:
        self._last = -math.inf  # when rows were taken
        self._left = False  # others have been waiting since then
        self._tokens = self._seconds = 0.0  # sums over the time with rows waiting, both with the same decay
        self._service = self._deviation = 0.0  # seconds, moving averages
        self._samples = 0

    @property
    def is_known(self) -> bool:
        """True once there are enough samples of the service time."""
        return self._samples >= LEAST_SAMPLES

    @property
    def _quick(self) -> float:
        """Seconds in which hardly any row is served; infinite while nothing is known."""
        return QUICK * self._service if self.is_known else math.inf

    def record_taken(self, tokens: int, now: float, left: bool, fills: bool = False) -> None:
        """Learn from rows that were taken out of the queue.

        Args:
            tokens: of these rows.
            now: clock seconds.
            left: other rows still wait.
            fills: a worker without rows took them. If it was idle, they did not have to wait, and do not show the rate.
        """
        passed = now - self._last
        if passed > FORGET_SECONDS:
            self._tokens = self._seconds = self._service = self._deviation = 0.0
            self._samples = 0
        elif self._left and not (fills and passed < self._quick):
            kept = math.exp(-passed / WINDOW_SECONDS)
            self._tokens = self._tokens * kept + tokens
            self._seconds = self._seconds * kept + passed
        self._last, self._left = now, left

    def record_empty(self) -> None:
        """Note that no row waits any more."""
        self._left = False

    def record_served(self, seconds: float) -> None:
        """Learn from a row that has its result, or has missed its deadline, `seconds` after it was taken."""
        self._samples = min(SERVICE_SAMPLES, self._samples + 1)
        if self._samples > 1:
            self._deviation += (abs(seconds - self._service) - self._deviation) / self._samples
        self._service += (seconds - self._service) / self._samples

    def forecast(self, tokens: float) -> Forecast | None:
        """Forecast for a call whose last row has so many tokens before it; None while too little is known."""
        if not self.is_known:
            return None
        service = self._service + SLOW * self._deviation
        if not tokens:
            return Forecast(0.0, service)
        if self._seconds < LEAST_SECONDS or not self._tokens:
            return None
        return Forecast(tokens * self._seconds / self._tokens, service)
