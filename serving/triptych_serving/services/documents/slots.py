"""How many documents are translated at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from triptych_serving.errors import OverloadedError

RETRY_SECONDS = 2.0  # documents take seconds to minutes


class Places:
    """Used in the event loop alone.

    Args:
        limit: documents that are held in memory at a time, those included that are still arriving.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """One of the places until the block ends.

        Raises:
            OverloadedError: there is none left.
        """
        if self.held >= self._limit:
            message = f"{self.held:,} documents are being translated, no more are taken at a time (--max-documents)"
            raise OverloadedError(message, RETRY_SECONDS)
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
