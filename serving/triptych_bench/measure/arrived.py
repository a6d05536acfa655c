"""Whether an open loop is done, while it runs: looked at many times, so each record is looked at once."""

import math
import time

from triptych_bench.load.log import Log
from triptych_bench.measure.steady import Span

ALLOWED = 0.01  # late requests of a 99th percentile


class Arrived:
    """Counts the requests that were due in a span.

    Args:
        log: of the run.
        limit: seconds; late requests are those that took longer. None: none is late.
        expected: about how many requests the span will have.
    """

    def __init__(self, log: Log, limit: float | None, expected: float) -> None:
        self._log, self._limit = log, limit
        self._most_late = max(1, math.ceil(ALLOWED * expected)) if limit is not None else math.inf
        self._span: Span | None = None
        self._looked = self._late = self._done = 0
        self._due: int | None = None  # known once the span is over

    def begin(self, span: Span) -> None:
        """From now on those count that are due in it."""
        self._span = span

    @property
    def complete(self) -> bool:
        """The span is over, and everything that was due in it has come back."""
        span = self._span
        if span is None or time.perf_counter() < span.end:
            return False
        if self._due is None:
            self._due = sum(span.has(due) for due in self._log.dues)
        self._look(span)
        return self._done >= self._due

    @property
    def hopeless(self) -> bool:
        """So many were late that the limit will not be met, whatever comes."""
        if self._span is None or self._limit is None:
            return False
        self._look(self._span)
        return self._late > 2 * self._most_late

    def keeps_up(self, span: Span, tolerance: float) -> bool:
        """About as many answers came in the span as requests were due."""
        due = sum(span.has(due) for due in self._log.dues)
        came = sum(record.ok and span.has(record.received) for record in self._log.records)
        return came >= due - max(tolerance * due, 3 * math.sqrt(due))

    def _look(self, span: Span) -> None:
        records = self._log.records
        for record in records[self._looked :]:
            if span.has(record.due):
                self._done += 1
                self._late += not record.ok or (self._limit is not None and record.latency > self._limit)
        self._looked = len(records)
