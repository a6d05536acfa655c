"""An event loop with precise timers and without pauses of the garbage collector, and interrupts by the user.

Anything that disturbs the load generator would look like the server's fault.
"""

import asyncio
import gc
import selectors
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_precisely(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run like `asyncio.run`, with timers to the microsecond and without garbage collection."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=_event_loop) as runner:
            return runner.run(work())
    finally:
        gc.enable()
        gc.unfreeze()


def _event_loop() -> asyncio.AbstractEventLoop:
    # epoll rounds timers up to the next millisecond, select does not.
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class StoppedError(Exception):
    """The user interrupted the benchmark; everything measured so far counts."""


class Interrupt:
    """The first Ctrl-C or SIGTERM; the next one ends the process as usual. Construct it inside the event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._previous_handlers: dict[int, Any] = {}

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals for the duration of the block."""
        self._previous_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number in self._previous_handlers:
                self._loop.add_signal_handler(number, self._set)
        except (NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread: asyncio's own handling
            self._previous_handlers = {}
        try:
            yield
        finally:
            self._restore()

    def _set(self) -> None:
        self._event.set()
        self._restore()

    def _restore(self) -> None:
        """Restore the previous handlers, such as the one that ends a server started by this process."""
        for number, handler in self._previous_handlers.items():
            self._loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)
        self._previous_handlers = {}

    async def sleep(self, seconds: float) -> None:
        """Sleep. Raises StoppedError as soon as the interrupt arrives."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return
        raise StoppedError

    async def unless(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work`. Raises StoppedError, and cancels the work, if the interrupt arrives first."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() or self._event.is_set():
                raise StoppedError
            return task.result()
        finally:
            task.cancel()
            stop.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)
