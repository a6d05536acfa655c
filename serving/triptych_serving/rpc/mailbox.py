"""News from other threads for an event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref


class Mailbox:
    """Callbacks that other threads leave for a loop, which is woken once for many of them: each time costs a system call,
    and a flood of tokens would fill the loop's pipe.

    They must not raise.

    Args:
        loop: whose thread calls them, in their order.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # which the dictionary below holds this by
        self._news: deque[Callable[[], None]] = deque()  # any thread appends, the loop takes
        self._told = False

    def post(self, callback: Callable[[], None]) -> None:
        """Have the loop call it soon. From any thread."""
        self._news.append(callback)
        if self._told:
            return
        self._told = True
        try:
            if (loop := self._loop()) is not None:
                loop.call_soon_threadsafe(self._take)
        except RuntimeError:  # it is closed: the server is gone, and with it whoever asked
            self._news.clear()

    def _take(self) -> None:
        self._told = False  # first: what is appended from here on either is taken below or wakes the loop again
        while self._news:
            self._news.popleft()()


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def mailbox() -> Mailbox:
    """The running loop's."""
    loop = asyncio.get_running_loop()
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found
