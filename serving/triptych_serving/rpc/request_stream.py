"""Many requests on one stream: a bounded number run at a time, and each is answered as soon as it is done."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

Request = TypeVar("Request")
Response = TypeVar("Response")

IN_FLIGHT = 64  # requests that are read and not yet answered
UNREAD = 64  # responses that wait for a slow reader


class RequestStream(Generic[Request, Response]):
    """The requests of one call. While a caller does not read responses, gRPC's flow control holds back its requests.

    The responses of one request are in order.

    Args:
        answer: yields all responses to one request; must not raise.
        in_order: returns True for requests that are answered in their order.
    """

    def __init__(
        self, answer: Callable[[Request], AsyncGenerator[Response]], in_order: Callable[[Request], bool] = lambda _: False
    ) -> None:
        self._answer, self._in_order = answer, in_order
        self._room, self._unread = asyncio.Semaphore(IN_FLIGHT), asyncio.Semaphore(UNREAD)
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
                self._unread.release()
            await reader
        finally:
            tasks = [reader, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # until they hold nothing

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        last: asyncio.Event | None = None  # set when the last request that is answered in order has its responses
        try:
            await self._room.acquire()
            async for request in requests:
                previous, answered = None, asyncio.Event()
                if self._in_order(request):
                    previous, last = last, answered
                task = asyncio.create_task(self._serve(previous, request, answered))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._room.acquire()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._responses.put_nowait(None)

    async def _serve(self, previous: asyncio.Event | None, request: Request, answered: asyncio.Event) -> None:
        try:
            async with aclosing(self._answer(request)) as responses:
                async for response in responses:
                    if previous is not None:
                        await previous.wait()
                    await self._unread.acquire()
                    self._responses.put_nowait(response)
        finally:
            answered.set()
            self._room.release()
