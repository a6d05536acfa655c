"""Detection of a steady state in closed loops, as in perf_analyzer, and of the end of open loops."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from triptych_bench.load.log import Log
from triptych_bench.target import Outcome

WINDOWS = 3  # consecutive windows that must agree
ALLOWED = 0.01  # share of late requests that a 99th percentile allows


@dataclass(frozen=True)
class Span:
    """A part of a run, from `start` (inclusive) to `end` (exclusive); moments of `time.perf_counter`."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def has(self, moment: float) -> bool:
        return self.start <= moment < self.end


@dataclass(frozen=True)
class Window:
    """A span with the number and the mean latency of the responses in it."""

    span: Span
    completed: int
    mean_latency: float

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self.completed / self.span.seconds

    @classmethod
    def of(cls, records: Sequence[Outcome], span: Span) -> "Window":
        """Summarize the records that were received in the span."""
        latencies = [record.latency for record in records if record.ok and span.has(record.received)]
        return cls(span, len(latencies), fmean(latencies) if latencies else 0.0)


def is_steady(windows: Sequence[Window], tolerance: float) -> bool:
    """Return whether rates and mean latencies of the last three windows are within `tolerance` of their means, none empty."""
    last = windows[-WINDOWS:]
    if len(last) < WINDOWS or not all(window.completed for window in last):
        return False
    return _close([window.rate for window in last], tolerance) and _close([window.mean_latency for window in last], tolerance)


def _close(values: Sequence[float], tolerance: float) -> bool:
    mean = fmean(values)
    return all(abs(value - mean) <= tolerance * mean for value in values)


class OpenLoopProgress:
    """The requests of an open loop that are due in a span. Checked often during a run, so it looks at each record once.

    Args:
        limit: Latency in seconds above which requests are late; None for no limit.
        expected: Approximate number of requests in the span.
    """

    def __init__(self, log: Log, span: Span, limit: float | None, expected: float) -> None:
        self._log, self._span, self._limit = log, span, limit
        self._most_late = max(1, math.ceil(ALLOWED * expected)) if limit is not None else math.inf
        self._looked = self._late = self._done = 0
        self._due: int | None = None  # known after the end of the span

    @property
    def complete(self) -> bool:
        """True if the span is over and all requests due in it have a response."""
        if time.perf_counter() < self._span.end:
            return False
        if self._due is None:
            self._due = sum(self._span.has(due) for due in self._log.dues)
        self._look()
        return self._done >= self._due

    @property
    def hopeless(self) -> bool:
        """True if so many requests were late that the limit cannot be met any more."""
        self._look()
        return self._late > 2 * self._most_late

    def keeps_up(self, span: Span, tolerance: float) -> bool:
        """Return whether about as many responses arrived in the span as requests were due."""
        due = sum(span.has(due) for due in self._log.dues)
        received = sum(record.ok and span.has(record.received) for record in self._log.records)
        return received >= due - max(tolerance * due, 3 * math.sqrt(due))

    def _look(self) -> None:
        records = self._log.records
        for record in records[self._looked :]:
            if self._span.has(record.due):
                self._done += 1
                self._late += not record.ok or (self._limit is not None and record.latency > self._limit)
        self._looked = len(records)
