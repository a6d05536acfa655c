"""Work between the event loop and threads: long work for threads, and callbacks from threads for the loop."""

import asyncio
import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, finalize, ref

from triptych_serving.errors import DeadlineError
from triptych_text.steps import Steps, advance, finish

Result = TypeVar("Result")

TURN_SECONDS = 0.02  # of long work in a thread, before others get their turn
INLINE_CHARACTERS = 2_000  # shorter work runs in the event loop: a hop to a thread costs more than the work
ANY_SIZE = INLINE_CHARACTERS + 1  # for `Offload`: the work runs in a thread


class Offload:
    """Run short work at once and long work in a pool of threads."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    async def run(self, size: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call `function(*arguments)`; `size` is roughly the number of characters that it processes."""
        if size <= INLINE_CHARACTERS:
            return function(*arguments)
        return await self.run_in_thread(function, *arguments)

    async def run_steps(self, size: int, deadline: float | None, steps: Steps[Result]) -> Result:
        """Run work in small steps: short work at once, long work in a thread, a few steps at a time.

        Other calls' work gets its turn in between. A call that is cancelled, or whose deadline has passed, has no further turn.

        Args:
            size: roughly the number of characters that it processes.
            deadline: clock seconds.

        Raises:
            DeadlineError: the deadline passed.
        """
        if size <= INLINE_CHARACTERS:
            return finish(steps)
        done: tuple[Result] | None = None
        while done is None:
            if deadline is not None and deadline <= monotonic():
                raise DeadlineError("the deadline passed before the request was prepared and its result converted")
            done = await self.run_in_thread(advance, steps, TURN_SECONDS)
        return done[0]

    async def run_in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call `function(*arguments)` in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


class Mailbox:
    """Queue of callbacks that other threads post, and that an event loop runs in order. Callbacks must not raise.

    The loop is woken once for many callbacks: each wake-up costs a system call, and a flood of tokens would fill its pipe.

    Args:
        loop: the loop whose thread runs the callbacks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # weak: `_mailboxes` is keyed by the loop
        self._callbacks: deque[Callable[[], None]] = deque()  # any thread appends, the loop pops
        self._scheduled = False
        self._event = _EventFile(loop, self._run) if sys.platform == "linux" else None

    def post(self, callback: Callable[[], None]) -> None:
        """Run a callback in the loop soon. Thread-safe."""
        self._callbacks.append(callback)
        if self._scheduled:
            return
        self._scheduled = True
        if (loop := self._loop()) is None or loop.is_closed():  # server and callers are gone
            self._callbacks.clear()
        else:
            self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._event is not None:
            self._event.set()
            return
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        if self._event is not None:
            self._event.clear()
        self._scheduled = False  # first: whatever is appended from here on is either popped below or wakes the loop again
        while self._callbacks:
            self._callbacks.popleft()()


class _EventFile:
    """An event of Linux for which an event loop waits.

    Setting it keeps Python's lock. `call_soon_threadsafe` gives it up, and the thread has to wait until the loop gives it back:
    a server that translates single sentences does 4 % less with it.

    Args:
        loop: waits for the event until it is closed.
        callback: what it runs then; it must clear the event.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        finalize(self, os.close, self._file).atexit = False  # threads may still set it
        one = ctypes.c_uint64(1)
        self._write = partial(ctypes.PyDLL(None).write, self._file, ctypes.byref(one), ctypes.c_size_t(ctypes.sizeof(one)))
        loop.add_reader(self._file, callback)

    def set(self) -> None:
        self._write()

    def clear(self) -> None:
        with suppress(BlockingIOError):  # it is not set
            os.eventfd_read(self._file)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def mailbox() -> Mailbox:
    """Return the mailbox of the running loop."""
    loop = asyncio.get_running_loop()
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found
