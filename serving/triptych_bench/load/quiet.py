"""A process that keeps time: what disturbs it would look like the server's fault."""

import asyncio
import gc
import selectors
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_quietly(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """`asyncio.run`, with timers to the microsecond and without pauses of the garbage collector."""
    with without_collector(), asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(work())


@contextmanager
def without_collector() -> Iterator[None]:
    """What is there now is left alone, and nothing is collected meanwhile."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _loop() -> asyncio.AbstractEventLoop:
    """epoll rounds timers up to the next millisecond, select does not."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class StoppedError(Exception):
    """The user has had enough: what has been measured counts."""


class Interrupt:
    """Ctrl-C and SIGTERM, once; the next one ends the process as usual. Made inside of the event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}  # handlers

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen, as long as the block lasts."""
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number in self._before:
                self._loop.add_signal_handler(number, self._set)
        except (NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread: asyncio's own way
            yield
            return
        try:
            yield
        finally:
            self._forget()

    def _set(self) -> None:
        self._event.set()
        self._forget()

    def _forget(self) -> None:
        """What listened before does so again, such as that of a server which must not be left behind."""
        for number, handler in self._before.items():
            self._loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)
        self._before = {}

    async def sleep(self, seconds: float) -> None:
        """Raises StoppedError: at once when it comes."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return
        raise StoppedError

    async def unless(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns. Raises StoppedError: it came before the work was done, which is cancelled."""
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
