"""How many images a model holds at once: counted before anything is decoded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from triptych_serving.admission import RETRY_AFTER_SECONDS
from triptych_serving.errors import InvalidInputError, OverloadedError, UnavailableError


class Gate:
    """Thread-safe.

    Args:
        limit: images.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def admit(self, images: int) -> Iterator[None]:
        """Hold so many, all or none.

        Raises:
            UnavailableError: the gate is closed.
            InvalidInputError: they alone are more than the limit.
            OverloadedError: too many are held already.
        """
        with self._changed:
            self._refuse(images)
            self.held += images
        try:
            yield
        finally:
            with self._changed:
                self.held -= images
                self._changed.notify_all()

    def close(self) -> None:
        """Refuse what comes from now on."""
        with self._changed:
            self._closed = True

    def wait(self) -> None:
        """Until none is held."""
        with self._changed:
            self._changed.wait_for(lambda: self.held == 0)

    def _refuse(self, images: int) -> None:
        if self._closed:
            raise UnavailableError("the model is shutting down")
        if images > self.limit:
            raise InvalidInputError("images", f"{images:,} in one request, at most {self.limit:,} can wait; send fewer")
        if self.held + images > self.limit:
            message = f"the queue is full: {self.held:,} images wait, {images:,} more exceed {self.limit:,}"
            raise OverloadedError(message, RETRY_AFTER_SECONDS)
