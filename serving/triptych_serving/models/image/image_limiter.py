"""How many images a model holds at once: counted before anything is decoded."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from triptych_serving.errors import InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.scheduling.admission import QueueLimits, check_time, full_queue
from triptych_serving.scheduling.wait_estimator import Forecast


class WaitForecaster(Protocol):
    """Where images wait that have passed the gate."""

    def forecast(self, images: int) -> Forecast | None:
        """For a request of so many; None: nobody waits, or too little is known."""

    def count_rejected(self) -> None:
        """A request was turned away."""


class ImageLimiter:
    """Thread-safe.

    Args:
        limit: images.
        line: what is behind the gate, if it is known how long one waits there.
        limits: of requests, and of the time that they wait.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit: int,
        line: WaitForecaster | None = None,
        limits: QueueLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.held = 0
        self._requests = 0
        self._line = line
        self._limits = limits or QueueLimits()
        self._clock = clock
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def admit(self, images: int, deadline: float | None = None) -> Iterator[None]:
        """Hold so many, all or none.

        Args:
            images: of one request.
            deadline: clock seconds.

        Raises:
            UnavailableError: the gate is closed.
            InvalidInputError: they alone are more than the limit.
            OverloadedError: too many are held already, or the deadline would pass before the last one's turn.
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
        """Refuse what comes from now on."""
        with self._changed:
            self._closed = True

    def wait(self) -> None:
        """Until none is held."""
        with self._changed:
            self._changed.wait_for(lambda: self.held == 0)

    def _check(self, images: int, deadline: float | None) -> None:
        if self._closed:
            raise UnavailableError("the model is shutting down")
        if images > self.limit:
            raise InvalidInputError("images", f"{images:,} in one request, at most {self.limit:,} can wait; send fewer")
        forecast = self._line.forecast(images) if self._line else None
        try:
            for name, held, more, limit in (
                ("requests", self._requests, 1, self._limits.waiting_calls),
                ("images", self.held, images, self.limit),
            ):
                if held + more > limit:
                    raise full_queue(name, held, more, limit, forecast)
            check_time(forecast, deadline if self._limits.refuses_late else None, self._clock(), self._limits.waiting_seconds)
        except OverloadedError:
            if self._line:
                self._line.count_rejected()
            raise
