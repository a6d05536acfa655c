"""Admission of images: limits how many a model holds at once, before anything is decoded."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from triptych_serving.errors import InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.models.image.image_job import DecodeQueue
from triptych_serving.scheduling.admission import QueueLimits, check_time, full_queue


class ImageLimiter:
    """Admits requests up to a number of images. Thread-safe.

    Args:
        limit: maximum number of images.
        line: forecasts waiting times.
        limits: maximum number of requests and waiting time.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit: int,
        line: DecodeQueue,
        limits: QueueLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.held = 0
        self._requests = 0
        self._line = line
        self._limits = limits
        self._clock = clock
        self._closed = False
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
        forecast = self._line.forecast(images)
        try:
            for name, held, more, limit in (
                ("requests", self._requests, 1, self._limits.waiting_calls),
                ("images", self.held, images, self.limit),
            ):
                if held + more > limit:
                    raise full_queue(name, held, more, limit, forecast)
            check_time(forecast, deadline if self._limits.refuses_late else None, self._clock(), self._limits.waiting_seconds)
        except OverloadedError:
            self._line.count_rejected()
            raise
