"""How fast a queue is worked off, and so how long a call would take that joins it. No clock, no threads.

What counts for the wait is the time in which somebody waited all along: from when rows were taken out and others left behind to
the next time. A queue that is empty now and then says nothing of how fast it could be.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WINDOW_SECONDS = 4.0  # with somebody waiting: what lies further back counts for little
LEAST_SECONDS = 0.25  # with somebody waiting: after less, nothing is known yet
FORGET_SECONDS = 60.0  # since rows were last taken: other callers may ask for other things
SERVICE_SAMPLES = 64  # about so many make the typical service time
LEAST_SAMPLES = 4  # after fewer, nothing is known yet
RISE, FALL, GREATEST = 0.04, 0.001, 3.0  # of the factor by which forecasts are stretched
QUICK = 0.25  # of the typical service time
KEPT = 0.95  # of what earlier texts count, with each call
SLOW = 2.0  # mean deviations of the service time: about one answer in twenty takes longer


@dataclass(frozen=True)
class Forecast:
    """What a call may expect that joins a queue now. Seconds."""

    wait: float  # until the turn of its last row
    service: float  # from there to its answer, if it is one of the slow ones

    @property
    def total(self) -> float:
        """Until its answer."""
        return self.wait + self.service

    def stretched(self, factor: float) -> "Forecast":
        """So many times as long."""
        return Forecast(self.wait * factor, self.service * factor)


class Caution:
    """How much longer than foretold calls are reckoned to take: more after each that was late, less after each that was not.

    Under load it comes to rest where about `FALL / RISE` of the calls that are let in are late.
    """

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1.0

    def add(self, in_time: bool) -> None:
        """A call has ended for which there was a forecast."""
        factor = self.factor * ((1 - FALL) if in_time else (1 + RISE))
        self.factor = min(GREATEST, max(1.0, factor))


@dataclass(frozen=True)
class ExpectedCall:
    """A call before its texts are tokenized, and those before it of which no more is known either."""

    rows: int = 1
    tokens: int = 0  # of all rows; 0: nobody knows
    calls_ahead: int = 0
    tokens_ahead: int = 0


class IncomingTexts:
    """Calls whose texts are being tokenized: what they weigh, by how many tokens a character made of late.

    Used in the event loop alone.
    """

    def __init__(self) -> None:
        self._characters = 0.0
        self._tokens = 0.0
        self._calls_now = 0
        self._tokens_now = 0

    def expect(self, rows: int, characters: int) -> ExpectedCall:
        """One more, with so many texts of so many characters in all."""
        tokens = round(characters * self._tokens / self._characters) if self._characters else 0
        return ExpectedCall(rows, tokens, self._calls_now, self._tokens_now)

    @contextmanager
    def hold(self, expected: ExpectedCall) -> Iterator[None]:
        """It is being tokenized."""
        self._calls_now += 1
        self._tokens_now += expected.tokens
        try:
            yield
        finally:
            self._calls_now -= 1
            self._tokens_now -= expected.tokens

    def learn(self, tokens: int, characters: int) -> None:
        """Texts of so many characters had so many tokens."""
        self._tokens = KEPT * self._tokens + tokens
        self._characters = KEPT * self._characters + characters


class Service:
    """How long a row takes once its turn has come, given how many rows run: a line through the latest samples."""

    __slots__ = ("_covariance", "_deviation", "_load", "_samples", "_seconds", "_variance")

    def __init__(self) -> None:
        self._samples = 0
        self._load = 0.0  # mean
        self._seconds = 0.0  # mean
        self._variance = 0.0  # of the load
        self._covariance = 0.0
        self._deviation = 0.0  # mean distance of a sample from the line

    @property
    def is_known(self) -> bool:
        """There are enough samples."""
        return self._samples >= LEAST_SAMPLES

    @property
    def quick(self) -> float:
        """Seconds in which hardly a row is served."""
        return QUICK * self._seconds if self.is_known else math.inf

    def add(self, seconds: float, load: int) -> None:
        """A row took so long, beside so many others."""
        self._samples = min(SERVICE_SAMPLES, self._samples + 1)
        part = 1 / self._samples
        if self._samples > 1:
            self._deviation += part * (abs(seconds - self._typical(load)) - self._deviation)
        away, further = load - self._load, seconds - self._seconds
        self._load += part * away
        self._seconds += part * further
        self._variance = (1 - part) * (self._variance + part * away * away)
        self._covariance = (1 - part) * (self._covariance + part * away * further)

    def seconds(self, load: int) -> float:
        """Of a slow one."""
        return self._typical(load) + SLOW * self._deviation

    def _typical(self, load: int) -> float:
        """A row is never faster for having company, and at worst all take turns."""
        if not self._variance:
            return self._seconds
        slope = min(max(0.0, self._covariance / self._variance), self._seconds / self._load)
        return self._seconds + slope * (load - self._load)


class WaitEstimator:
    """Of one queue."""

    __slots__ = ("_last", "_left", "_seconds", "_service", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0  # taken while somebody waited, of late
        self._seconds = 0.0  # in which they were
        self._last = -math.inf  # when rows were taken
        self._left = False  # others have been waiting since then
        self._service = Service()

    @property
    def is_known(self) -> bool:
        """There have been enough answers lately to say how long one takes."""
        return self._service.is_known

    def take(self, tokens: int, now: float, left: bool, fills: bool = False) -> None:
        """Rows were taken out of the queue.

        Args:
            tokens: of these rows.
            now: clock seconds.
            left: others wait on.
            fills: a worker without rows took them: perhaps it was idle, and they had to wait for nobody's end.
        """
        passed = now - self._last
        if passed > FORGET_SECONDS:
            self._tokens = self._seconds = 0.0
            self._service = Service()
        elif self._left and not (fills and passed < self._service.quick):
            kept = math.exp(-passed / WINDOW_SECONDS)
            self._tokens = self._tokens * kept + tokens
            self._seconds = self._seconds * kept + passed
        self._last, self._left = now, left

    def pause(self) -> None:
        """Nobody waits any more."""
        self._left = False

    def serve(self, seconds: float, load: int = 0) -> None:
        """A row that was taken so long ago has its result, or its time is up.

        Args:
            seconds: since then.
            load: rows that run, where they slow each other down.
        """
        self._service.add(seconds, load)

    def forecast(self, tokens: float, load: int = 0) -> Forecast | None:
        """For a call that has so many before its last row's turn, beside so many running rows. None: too little is known."""
        if not self._service.is_known:
            return None
        if not tokens:
            return Forecast(0.0, self._service.seconds(load))
        if self._seconds < LEAST_SECONDS or not self._tokens:
            return None
        return Forecast(tokens * self._seconds / self._tokens, self._service.seconds(load))
