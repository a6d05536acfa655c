"""Many requests on one stream: so many are under way at most, and each is answered as soon as it is done.

Those without an id, whose answers nobody could tell apart, are answered in their order, as Triton answers all.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeAlias

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.servicers.imagestream import end

Request: TypeAlias = pb.ModelInferRequest
Response: TypeAlias = pb.ModelStreamInferResponse
IN_FLIGHT = 64  # requests that are read and not yet answered
UNREAD = 64  # responses that wait for a caller who is slow to read


class InferStream:
    """One call's requests. A caller that does not read is not read from either: gRPC's flow control holds it back.

    Args:
        answer: all responses of one request; raises nothing.
    """

    def __init__(self, answer: Callable[[Request], AsyncGenerator[Response]]) -> None:
        self._answer = answer
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._unread = asyncio.Semaphore(UNREAD)
        self._responses: asyncio.Queue[Response | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = _happened()  # of the requests without an id

    async def responses(self, requests: AsyncIterator[Request]) -> AsyncGenerator[Response]:
        """Those of all requests; of one request they are in order.

        Raises:
            ServingError: a message cannot be read; those before it have been answered.
        """
        reader = asyncio.create_task(self._read(requests))
        try:
            while (response := await self._responses.get()) is not None:
                self._unread.release()
                yield response
            await reader
        finally:
            await end([reader, *self._tasks])

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        try:
            await self._room.acquire()
            async for request in requests:
                task = asyncio.create_task(self._serve(request, *self._turn(request)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._room.acquire()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._responses.put_nowait(None)

    def _turn(self, request: Request) -> tuple[asyncio.Event, asyncio.Event]:
        """When its first response may be sent, and what its last one makes happen."""
        answered = asyncio.Event()
        if request.id:
            return _happened(), answered
        before, self._last = self._last, answered
        return before, answered

    async def _serve(self, request: Request, turn: asyncio.Event, answered: asyncio.Event) -> None:
        try:
            async with aclosing(self._answer(request)) as responses:
                async for response in responses:
                    await turn.wait()
                    await self._unread.acquire()
                    self._responses.put_nowait(response)
        finally:
            answered.set()
            self._room.release()


def _happened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
