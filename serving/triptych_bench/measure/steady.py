"""When a load has settled: as perf_analyzer finds out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from triptych_bench.load.log import Record

WINDOWS = 3  # in a row that must agree


@dataclass(frozen=True)
class Span:
    """Part of a run; moments of `time.perf_counter`."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def has(self, moment: float) -> bool:
        """The end is not in it."""
        return self.start <= moment < self.end


@dataclass(frozen=True)
class Window:
    """A span, and what came back in it."""

    span: Span
    completed: int
    mean_latency: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.completed / self.span.seconds

    @classmethod
    def of(cls, records: Sequence[Record], span: Span) -> "Window":
        """Those that were answered in it."""
        latencies = [record.latency for record in records if record.ok and span.has(record.received)]
        mean = math.fsum(latencies) / len(latencies) if latencies else 0.0
        return cls(span, len(latencies), mean)


def is_steady(windows: Sequence[Window], tolerance: float) -> bool:
    """Rate and mean latency of the last three windows are each within `tolerance` of their mean, and none is empty."""
    last = windows[-WINDOWS:]
    if len(last) < WINDOWS or not all(window.completed for window in last):
        return False
    return _close([window.rate for window in last], tolerance) and _close([window.mean_latency for window in last], tolerance)


def _close(values: Sequence[float], tolerance: float) -> bool:
    mean = math.fsum(values) / len(values)
    return all(abs(value - mean) <= tolerance * mean for value in values)
