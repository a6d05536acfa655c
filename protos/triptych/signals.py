"""SIGINT and SIGTERM of commands and servers."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SAME_SIGNAL_SECONDS = 0.5  # signals within this time of the first are one: timeout(1) signals its child, then its group


@contextmanager
def handled_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Call `handle` in the main thread with the number of each signal; afterwards the signals do what they did before.

    For asyncio too: its own handlers are lost when its pipe is full.
    """
    first: float | None = None

    def note(number: int, _: object) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None or now - first >= SAME_SIGNAL_SECONDS:
            first = now if first is None else first
            handle(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
