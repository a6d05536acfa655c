"""Images that wait to be decoded, and how long it would take until the engine has a new one's labels."""

import threading
from collections.abc import Callable

from triptych_serving.encoding.engine import OneShotEngine
from triptych_serving.scheduling.wait_estimator import Forecast, WaitEstimator


class DecodeQueue:
    """What stands before a pool of threads, which decode images for one engine. Thread-safe.

    Args:
        engine: where decoded images go.
        row_size: tokens that an image counts as there.
        clock: monotonic seconds.
    """

    def __init__(self, engine: OneShotEngine, row_size: int, clock: Callable[[], float]) -> None:
        self.waiting = 0  # images
        self._engine = engine
        self._row_size = row_size
        self._clock = clock
        self._pace = WaitEstimator()
        self._lock = threading.Lock()

    def join(self) -> None:
        """One more waits."""
        with self._lock:
            self.waiting += 1

    def take(self) -> None:
        """A thread decodes one now."""
        with self._lock:
            self.waiting -= 1
            self._pace.take(1, self._clock(), left=self.waiting > 0)

    def leave(self) -> None:
        """One will not be decoded: nobody waits for it any more."""
        with self._lock:
            self.waiting -= 1
            if not self.waiting:
                self._pace.pause()

    def decoded(self, seconds: float) -> None:
        """It took so long to decode one."""
        with self._lock:
            self._pace.serve(seconds)

    def forecast(self, images: int) -> Forecast | None:
        """For a request of so many. None: nobody waits here or in the engine, or too little is known of both.

        Images are decoded while others are computed, so whichever takes longer decides.
        """
        with self._lock:
            ahead = self.waiting + images - 1
            decoding = self._pace.forecast(ahead) if self.waiting else None
        if decoding is None and not self._engine.load()[1]:
            return None
        known = [forecast for forecast in (decoding, self._engine.forecast(ahead * self._row_size)) if forecast]
        if not known:
            return None
        return Forecast(max(forecast.wait for forecast in known), sum(forecast.service for forecast in known))

    def count_rejected(self) -> None:
        """A request was turned away."""
        self._engine.count_rejected()
