"""Ends a job between two of its steps where somebody asks for it."""

import signal
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
BY_SIGNAL = 128  # an exit code is this and the signal's number, as shells have it


class Stopping:
    """A context manager for the main thread. The first signal is noted; the second one ends the process at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """Of a job that was stopped."""
        return BY_SIGNAL + (self.signal or signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
