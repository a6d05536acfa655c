"""Image jobs: each image is decoded in a pool of threads, then becomes a row of the engine."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from dataclasses import dataclass

from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.encoding.engine import OneShotEngine
from triptych_serving.encoding.image_runner import ImageRow
from triptych_serving.errors import CancelledError, DeadlineError, UnavailableError
from triptych_serving.images.decode import decode_image
from triptych_serving.models.labels import ScoredLabel
from triptych_serving.scheduling.request import Call, Item, Listener
from triptych_serving.scheduling.wait_estimator import Forecast, WaitEstimator


class DecodeQueue:
    """The queue of images before the pool of decoding threads, with a forecast of their waiting time. Thread-safe.

    Args:
        engine: receives the decoded images.
        row_size: tokens that an image counts as in the engine.
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
        """Add an image."""
        with self._lock:
            self.waiting += 1

    def take(self) -> None:
        """Remove an image that a thread starts to decode."""
        with self._lock:
            self.waiting -= 1
            self._pace.take(1, self._clock(), left=self.waiting > 0)

    def leave(self) -> None:
        """Remove an image that will not be decoded."""
        with self._lock:
            self.waiting -= 1
            if not self.waiting:
                self._pace.pause()

    def decoded(self, seconds: float) -> None:
        """Record the time that decoding an image took."""
        with self._lock:
            self._pace.serve(seconds)

    def forecast(self, images: int) -> Forecast | None:
        """Forecast the waiting time of a request; None if no image waits here or in the engine, or too little is known of both.

        Images are decoded while others are computed, so the slower of the two decides.
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
        """Count a rejected request."""
        self._engine.count_rejected()


@dataclass(frozen=True, slots=True)
class ClassifiedImage:
    """The labels of one image, best first."""

    labels: tuple[ScoredLabel, ...]
    width: int  # pixels of the file, turned upright
    height: int


@dataclass(frozen=True)
class ImageRequest:
    """One image, and the options of its classification."""

    data: bytes  # the file
    k: int  # labels
    field: str  # request field, for errors
    deadline: float | None = None  # monotonic seconds


@dataclass(frozen=True)
class ImageParts:
    """Resources that the jobs of one model share."""

    engine: OneShotEngine
    spec: ImageSpec
    labels: tuple[str, ...]
    row_size: int  # tokens that an image counts as
    queue: DecodeQueue


class ImageJob(Listener):
    """The classification of one image. Starts at once; `done` finishes with None, or with the image's error."""

    def __init__(self, request: ImageRequest, parts: ImageParts, pool: Executor) -> None:
        self.done: Future[None] = Future()
        self.arrived = time.monotonic()
        self.decode_seconds = 0.0
        self._parts = parts
        self._call: Call[Item] | None = None
        self._size = (0, 0)
        parts.queue.join()
        try:
            self._decoding = pool.submit(self._decode, request)
        except RuntimeError:  # the pool is shut down
            parts.queue.leave()
            raise UnavailableError("the model is shutting down") from None
        self._decoding.add_done_callback(self._on_decoded)

    def result(self) -> ClassifiedImage:
        """Wait, and return the result. Raises ServingError: the image could not be classified."""
        self.done.result()
        scores, indices = self._item.result
        labels = self._parts.labels
        ranked = zip(scores.tolist(), indices.tolist(), strict=True)
        return ClassifiedImage(tuple(ScoredLabel(labels[index], score, index) for score, index in ranked), *self._size)

    def cancel(self) -> None:
        """Cancel the job."""
        self._end(CancelledError("the caller cancelled the request"))
        self._decoding.cancel()
        if self._call is not None:
            self._parts.engine.cancel(self._call)

    @property
    def started(self) -> float:
        """Clock seconds when its batch started; valid once there is a result."""
        return self._item.started

    @property
    def ended(self) -> float:
        """Clock seconds when its batch ended."""
        return self._item.ended

    @property
    def waited(self) -> float:
        """Seconds before its batch started, without decoding."""
        return self._item.started - self.arrived - self.decode_seconds

    def on_end(self) -> None:
        """Finish the job."""
        self._end(None if self._call is None else self._call.error)

    @property
    def _item(self) -> Item:
        assert self._call is not None, "only a finished job has an item"
        return self._call.rows[0]

    def _decode(self, request: ImageRequest) -> None:
        self._parts.queue.take()
        if self.done.done():
            return
        began = time.monotonic()
        if request.deadline is not None and request.deadline <= began:
            raise DeadlineError("the deadline passed before the image was decoded")
        decoded = decode_image(request.data, self._parts.spec, request.field)
        self.decode_seconds = time.monotonic() - began
        self._parts.queue.decoded(self.decode_seconds)
        self._size = decoded.width, decoded.height
        item = Item(ImageRow(decoded.pixels, request.k), self._parts.row_size)
        self._call = Call([item], self, request.deadline, field=request.field)
        self._parts.engine.submit(self._call)
        if self.done.done():  # cancelled in the meantime
            self._parts.engine.cancel(self._call)

    def _on_decoded(self, decoding: "Future[None]") -> None:
        if decoding.cancelled():
            self._parts.queue.leave()
            self._end(UnavailableError("the model is shutting down"))
        elif (error := decoding.exception()) is not None:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Finish the job unless it already is."""
        try:
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
        except InvalidStateError:
            return
