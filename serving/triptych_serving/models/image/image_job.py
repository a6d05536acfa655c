"""Image jobs: each image is decoded in a pool of threads, then becomes a row of the engine."""

import time
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass

from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.encoding.engine import OneShotEngine
from triptych_serving.encoding.image_runner import ImageRow
from triptych_serving.errors import CancelledError, DeadlineError, UnavailableError
from triptych_serving.images.decode import decode_image
from triptych_serving.models.image.image_limiter import ImageLimiter
from triptych_serving.models.labels import ScoredLabel
from triptych_serving.scheduling.request import Call, Item, Listener


@dataclass(frozen=True, slots=True)
class ClassifiedImage:
    """The labels of one image, best first."""

    labels: tuple[ScoredLabel, ...]
    width: int  # pixels of the file, turned upright
    height: int


@dataclass(frozen=True)
class ImageParts:
    """Resources that the jobs of one model share."""

    engine: OneShotEngine
    spec: ImageSpec
    labels: tuple[str, ...]
    row_size: int  # tokens that an image counts as
    limiter: ImageLimiter
    pool: Executor


class ImageJob(Listener):
    """The classification of one image. Starts at once; `done` finishes with None, or with the image's error.

    Args:
        data: the file.
        k: number of labels.
        field: request field, for errors.
        deadline: monotonic seconds.
    """

    def __init__(self, parts: ImageParts, data: bytes, k: int, field: str, deadline: float | None) -> None:
        self.done: Future[None] = Future()
        self.arrived = time.monotonic()
        self.decode_seconds = 0.0
        self._parts = parts
        self._call: Call[Item] | None = None
        self._size = (0, 0)
        parts.limiter.join()
        try:
            self._decoding = parts.pool.submit(self._decode, data, k, field, deadline)
        except RuntimeError:  # the pool is shut down
            parts.limiter.leave()
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

    def _decode(self, data: bytes, k: int, field: str, deadline: float | None) -> None:
        self._parts.limiter.take()
        if self.done.done():
            return
        began = time.monotonic()
        if deadline is not None and deadline <= began:
            raise DeadlineError("the deadline passed before the image was decoded")
        decoded = decode_image(data, self._parts.spec, field)
        self.decode_seconds = time.monotonic() - began
        self._parts.limiter.decoded(self.decode_seconds)
        self._size = decoded.width, decoded.height
        item = Item(ImageRow(decoded.pixels, k), self._parts.row_size)
        self._call = Call([item], self, deadline, field=field)
        self._parts.engine.submit(self._call)
        if self.done.done():  # cancelled in the meantime
            self._parts.engine.cancel(self._call)

    def _on_decoded(self, decoding: "Future[None]") -> None:
        if decoding.cancelled():
            self._parts.limiter.leave()
            self._end(UnavailableError("the model is shutting down"))
        elif (error := decoding.exception()) is not None:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Finish the job unless it already is."""
        with suppress(InvalidStateError):
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
