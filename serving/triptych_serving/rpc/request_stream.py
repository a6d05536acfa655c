"""Many requests on one stream: so many are under way at most, and each is answered as soon as it is done."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Response = TypeVar("Response")


class RequestStream(ABC, Generic[Request, Response]):
    """One call's requests. A caller that does not read is not read from either: gRPC's flow control holds it back.

    What `_begin` makes of a request raises nothing, puts responses into `_responses`, and sees to it that `_room` is released.

    Args:
        in_flight: requests that are read and not yet answered.
    """

    def __init__(self, in_flight: int) -> None:
        self._room = asyncio.Semaphore(in_flight)
        self._responses: asyncio.Queue[Response | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def responses(self, requests: AsyncIterator[Request]) -> AsyncGenerator[Response]:
        """Those of all requests.

        Raises:
            ServingError: a message cannot be read; those before it have been answered.
        """
        reader = asyncio.create_task(self._read(requests))
        try:
            while (response := await self._responses.get()) is not None:
                yield response
                self._on_sent()
            await reader
        finally:
            await _end([reader, *self._tasks])

    @abstractmethod
    def _begin(self, request: Request) -> Coroutine[Any, Any, None]:
        """The coroutine that answers it."""

    @abstractmethod
    def _on_sent(self) -> None:
        """gRPC has taken a response."""

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        try:
            await self._room.acquire()
            async for request in requests:
                task = asyncio.create_task(self._begin(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._room.acquire()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._responses.put_nowait(None)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have cleaned up: what they hold is given back before the call is over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
