"""Interruption of a thread that reads or writes a document nobody waits for any more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class InterruptionError(Exception):
    """The work was interrupted."""


class _Current(threading.local):
    stop: threading.Event | None = None  # of this thread's work


_current = _Current()


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Let `checkpoint` raise an error in this thread once the event is set."""
    _current.stop = stop
    try:
        yield
    finally:
        _current.stop = None


def checkpoint() -> None:
    """Raise InterruptionError if this thread's work is to stop. Readers call it in every loop over a document."""
    if _current.stop is not None and _current.stop.is_set():
        raise InterruptionError
