"""Show progress on one line of a terminal."""

import shutil
import time
from collections.abc import Callable
from typing import TextIO

EVERY_SECONDS = 0.2
CLEAR = "\r\x1b[K"


class ProgressLine:
    """A line with the share done and the time left, by bytes: the number of segments is unknown before documents are read.

    Args:
        stream: a terminal, or None: nothing is shown.
        documents: number of documents; 0: the line counts `unit` alone.
    """

    def __init__(
        self,
        stream: TextIO | None,
        documents: int,
        size: int,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "segments",
    ) -> None:
        self._stream, self._clock, self._unit = stream, clock, unit
        self._documents, self._size = documents, size
        self._done = 0
        self._began = clock()
        self._next = self._began

    def finish(self, skipped: int) -> None:
        """Count a finished document; `skipped` bytes of it took no work, as an earlier run translated it or it failed."""
        self._done += 1
        self._size -= skipped

    def show(self, segments: int, bytes_done: float) -> None:
        """Update the line, at most every 0.2 s."""
        now = self._clock()
        if self._stream is None or now < self._next:
            return
        self._next = now + EVERY_SECONDS
        line = self.line(segments, bytes_done)[: shutil.get_terminal_size().columns - 1]
        self._stream.write(CLEAR + line)
        self._stream.flush()

    def line(self, segments: int, bytes_done: float) -> str:
        """Return the text of the line."""
        seconds = max(self._clock() - self._began, 1e-3)
        share = min(1.0, bytes_done / self._size) if self._size > 0 else 1.0
        left = f"{_time(seconds * (1 - share) / share)} left" if share > 0 else "..."
        done = f"{self._done:,} of {self._documents:,} documents  " if self._documents else ""
        return f"{share:4.0%}  {done}{segments:,} {self._unit}  {segments / seconds:,.0f}/s  {left}"

    def clear(self) -> None:
        """Remove the line before other output."""
        if self._stream is not None:
            self._stream.write(CLEAR)
            self._stream.flush()


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
