"""The document driver: moves units through a translator with a bounded number of requests in flight."""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Unit


class DocumentDriver:
    """Issue the sentence requests of many units in bounded numbers, and collect the finished units.

    The caller owns the translator and the loop; no call waits for anything:

        driver = DocumentDriver(UnitTranslator(rules), enumerate(document.units), window=512)
        results = []
        while not driver.is_finished:
            for unit in driver.advance(results):
                ...  # keep unit.pieces for Document.render
            submit(driver.take())
            results = receive()  # of any requests in flight, in any order; without waiting if driver.can_read

    Not thread-safe; successive calls may come from different threads.

    Args:
        translator: turns units into requests, and results into units.
        units: units with their keys, read lazily.
        window: units are read while fewer requests than this are queued or in flight.
        refill: share of the window that must be free before units are read: reading a few at a time costs more.
        step_units: maximum number of units per call of `advance`, which bounds its duration.
    """

    def __init__(
        self,
        translator: UnitTranslator,
        units: Iterable[tuple[Hashable, Unit]],
        *,
        window: int,
        refill: float = 0.0,
        step_units: int = 1_024,
    ) -> None:
        self._translator, self._units = translator, iter(units)
        self._window, self._refill, self._step_units = window, refill, step_units
        self._queues: tuple[deque[SentenceRequest], deque[SentenceRequest]] = deque(), deque()  # plain, aligned
        self._in_flight = 0
        self._is_read = False

    @property
    def is_finished(self) -> bool:
        """True if all units have been read, translated and returned."""
        finished = self._is_read and not self._pending
        assert not (finished and self._translator.waiting), "a unit waits, but no request is pending"
        return finished

    @property
    def can_read(self) -> bool:
        """True if `advance` can read units without further results."""
        free = self._window - self._pending
        return not self._is_read and free > 0 and free >= self._refill * self._window

    @property
    def _pending(self) -> int:
        return self._in_flight + sum(map(len, self._queues))

    def advance(self, results: Iterable[tuple[SentenceRequest, SentenceResult]] = ()) -> Sequence[TranslatedUnit]:
        """Record results, read units while there is room, and return the units that are finished now."""
        for request, result in results:
            self._in_flight -= 1
            self._queue(self._translator.answer(request, result))
        if self.can_read:
            for _ in range(self._step_units):
                if (found := next(self._units, None)) is None:
                    self._is_read = True
                    break
                self._queue(self._translator.add(*found))
                if self._pending >= self._window:
                    break
        return self._translator.done()

    def take(self, limit: int | None = None) -> list[SentenceRequest]:
        """Return the next requests to translate.

        Args:
            limit: maximum number; the requests are then all aligned or all not. None: all that are queued.
        """
        if limit is None:
            taken = [request for queue in self._queues for request in queue]
            for queue in self._queues:
                queue.clear()
        else:
            queue = max(self._queues, key=len)
            taken = [queue.popleft() for _ in range(min(limit, len(queue)))]
        self._in_flight += len(taken)
        return taken

    def _queue(self, requests: Iterable[SentenceRequest]) -> None:
        for request in requests:
            self._queues[request.aligned].append(request)
