"""Many requests on one stream: a bounded number run at a time, and each is answered as soon as it is done."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Response = TypeVar("Response")


class RequestStream(ABC, Generic[Request, Response]):
    """The requests of one call. While a caller does not read responses, gRPC's flow control holds back its requests.

    The coroutine of `_serve` must not raise, puts responses into `_responses`, and ensures that `_room` is released.

    Args:
        in_flight: most requests that are read and not yet answered.
    """

    def __init__(self, in_flight: int) -> None:
        self._room = asyncio.Semaphore(in_flight)
        self._responses: asyncio.Queue[Response | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def responses(self, requests: AsyncIterator[Request]) -> AsyncGenerator[Response]:
        """Yield the responses to all requests.

        Raises:
            ServingError: a request cannot be read; those before it have been answered.
        """
        reader = asyncio.create_task(self._read(requests))
        try:
            while (response := await self._responses.get()) is not None:
                yield response
                self._on_sent()
            await reader
        finally:
            await cancel_all([reader, *self._tasks])

    @abstractmethod
    def _serve(self, request: Request) -> Coroutine[Any, Any, None]:
        """Return the coroutine that answers a request. Called in the order of the requests."""

    @abstractmethod
    def _on_sent(self) -> None:
        """Handle that gRPC has taken a response."""

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        try:
            await self._room.acquire()
            async for request in requests:
                task = asyncio.create_task(self._serve(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._room.acquire()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._responses.put_nowait(None)


async def cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have cleaned up, so that they hold nothing when the call ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
