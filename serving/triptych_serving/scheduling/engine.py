"""Callers that have nothing else to do than to wait for an engine."""

import threading
from collections.abc import Sequence
from typing import Protocol, TypeVar

from triptych_serving.scheduling.request import Call, Listener, Measured

RowT = TypeVar("RowT", bound=Measured)


class Engine(Protocol[RowT]):
    """Any engine."""

    def submit(self, call: Call[RowT]) -> None: ...

    def cancel(self, call: Call[RowT]) -> None: ...


class Waiter(Listener):
    """A listener that wakes a thread at the end."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def on_end(self) -> None:
        self.done.set()


def run_rows(engine: Engine[RowT], rows: Sequence[RowT], field: str = "contents") -> None:
    """Have an engine work on rows, which come from the request's `field`, and wait for the last one.

    Raises:
        ServingError: the call as a whole failed.
    """
    if not rows:
        return
    waiter = Waiter()
    call = Call(rows, waiter, field=field)
    engine.submit(call)
    try:
        waiter.done.wait()
    except BaseException:  # Ctrl-C: the engine must not go on for nobody
        engine.cancel(call)
        raise
    if call.error is not None:
        raise call.error
