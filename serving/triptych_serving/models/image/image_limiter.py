"""Admission of images: limits how many a model holds at once, before anything is decoded, and forecasts their waiting time."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from triptych_serving.encoding.engine import OneShotEngine
from triptych_serving.errors import InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.scheduling.admission import QueueLimits, check_time, full_queue
from triptych_serving.scheduling.wait_estimator import Forecast, WaitEstimator


class ImageLimiter:
    """Admits requests up to a number of images, and counts those that wait for a decoding thread. Thread-safe.

    Args:
        limit: maximum number of images.
        engine: receives the decoded images.
        row_size: tokens that an image counts as in the engine.
        limits: maximum number of requests and waiting time.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit: int,
        engine: OneShotEngine,
        row_size: int,
        limits: QueueLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.held = 0  # images of admitted requests
        self.waiting = 0  # images that no thread has started to decode
        self._engine, self._row_size = engine, row_size
        self._limits, self._clock = limits, clock
        self._requests = 0
        self._closed = False
        self._decoding = WaitEstimator()
        self._changed = threading.Condition()

    @contextmanager
    def admit(self, images: int, deadline: float | None = None) -> Iterator[None]:
        """Context that holds the images of one request, all or none.

        Args:
            deadline: clock seconds.

        Raises:
            UnavailableError: the limiter is closed.
            InvalidInputError: the request alone exceeds the limit.
            OverloadedError: too many images are held, or the deadline would pass before the last one is classified.
        """
        with self._changed:
            self._check(images, deadline)
            self.held += images
            self._requests += 1
        try:
            yield
        finally:
            with self._changed:
                self.held -= images
                self._requests -= 1
                self._changed.notify_all()

    def join(self) -> None:
        """Add an image that waits for a decoding thread."""
        with self._changed:
            self.waiting += 1

    def take(self) -> None:
        """Remove an image that a thread starts to decode."""
        with self._changed:
            self.waiting -= 1
            self._decoding.record_taken(1, self._clock(), left=self.waiting > 0)

    def leave(self) -> None:
        """Remove an image that will not be decoded."""
        with self._changed:
            self.waiting -= 1
            if not self.waiting:
                self._decoding.record_empty()

    def decoded(self, seconds: float) -> None:
        """Record the time that decoding an image took."""
        with self._changed:
            self._decoding.record_served(seconds)

    def close(self) -> None:
        """Reject all further requests."""
        with self._changed:
            self._closed = True

    def wait(self) -> None:
        """Wait until no image is held."""
        with self._changed:
            self._changed.wait_for(lambda: self.held == 0)

    def _check(self, images: int, deadline: float | None) -> None:
        if self._closed:
            raise UnavailableError("the model is shutting down")
        if images > self.limit:
            raise InvalidInputError("images", f"{images:,} in one request, at most {self.limit:,} can wait; send fewer")
        forecast = self._forecast(images)
        try:
            for name, held, more, limit in (
                ("requests", self._requests, 1, self._limits.waiting_calls),
                ("images", self.held, images, self.limit),
            ):
                if held + more > limit:
                    raise full_queue(name, held, more, limit, forecast)
            check_time(forecast, deadline if self._limits.refuses_late else None, self._clock(), self._limits.waiting_seconds)
        except OverloadedError:
            self._engine.count_rejected()
            raise

    def _forecast(self, images: int) -> Forecast | None:
        """Forecast the waiting time of a request; None if no image waits here or in the engine, or too little is known of both.

        Images are decoded while others are computed, so the slower of the two decides.
        """
        ahead = self.waiting + images - 1
        decoding = self._decoding.forecast(ahead) if self.waiting else None
        if decoding is None and not self._engine.count_rows()[1]:
            return None
        known = [forecast for forecast in (decoding, self._engine.forecast(ahead * self._row_size)) if forecast]
        if not known:
            return None
        return Forecast(max(forecast.wait for forecast in known), sum(forecast.service for forecast in known))
