"""SIGINT and SIGTERM of commands and servers."""

import contextvars
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing it takes long, and commands that use no loop need none
    from asyncio import AbstractEventLoop

SAME_SIGNAL_SECONDS = 0.5  # signals within this time of the first are one: timeout(1) signals its child, then its group


@contextmanager
def handled_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Call `handle` in the main thread with the number of each signal; afterwards the signals do what they did before."""
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


@contextmanager
def on_sigterm(end: Callable[[int], object]) -> Iterator[None]:
    """Call `end` with the number of SIGTERM when it arrives. Only the main thread has handlers; elsewhere nothing is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: end(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def signals_in_loop(loop: "AbstractEventLoop", handle: Callable[[int], object]) -> Iterator[None]:
    """Call `handle` in the main thread's event loop with the number of each signal; afterwards as in `handled_signals`.

    Not with `add_signal_handler`, which loses signals while its pipe is full. This pipe only wakes the loop: Python runs
    handlers in the main thread, and a signal that another thread receives would not interrupt a loop that waits.
    """
    context = contextvars.copy_context()  # not that of the call which a signal interrupts
    receiver, sender = socket.socketpair()
    with receiver, sender, handled_signals(lambda number: loop.call_soon_threadsafe(handle, number, context=context)):
        receiver.setblocking(False)
        sender.setblocking(False)
        loop.add_reader(receiver, receiver.recv, 4096)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(receiver)
