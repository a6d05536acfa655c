"""The calls that are being handled, and the messages that callers are still sending."""

import asyncio
from collections.abc import AsyncIterator


class ActiveCalls:
    """The calls that are being handled. Used in the event loop alone."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()  # nothing more is accepted: who waits for a caller's next message shall not wait on
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def begin(self) -> None:
        """One more."""
        self._count += 1
        self._none.clear()

    def end(self) -> None:
        """One less."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def drained(self) -> None:
        """Wait until there are none."""
        await self._none.wait()


class Incoming:
    """A caller's messages, until it has no more or the server stops."""

    def __init__(self, requests: AsyncIterator[bytes], stopping: asyncio.Event) -> None:
        self.cut_off = False
        self._requests = aiter(requests)
        self._stopping = stopping

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stop = asyncio.create_task(self._stopping.wait())
        try:
            while True:
                read = asyncio.create_task(self._read())
                await asyncio.wait((read, stop), return_when=asyncio.FIRST_COMPLETED)
                if not read.done():
                    self.cut_off = True
                    return
                if (request := read.result()) is None:
                    return
                yield request
        finally:
            stop.cancel()
            read.cancel()

    async def _read(self) -> bytes | None:
        return await anext(self._requests, None)
