"""Many images on one stream: each is answered as soon as it is done, and so many are in flight at most."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from triptych.v1 import image_classification_pb2

StreamRequest = image_classification_pb2.ClassifyImageStreamRequest
StreamResponse = image_classification_pb2.ClassifyImageStreamResponse


class ImageStream:
    """One call's images. A caller that does not read its answers is not read from either: gRPC's flow control holds it back.

    Args:
        answer: one image's answer; raises nothing.
        in_flight: images that are read and not yet answered.
    """

    def __init__(self, answer: Callable[[StreamRequest], Awaitable[StreamResponse]], in_flight: int) -> None:
        self._answer = answer
        self._room = asyncio.Semaphore(in_flight)
        self._answers: asyncio.Queue[StreamResponse | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def responses(self, requests: AsyncIterator[StreamRequest]) -> AsyncGenerator[StreamResponse]:
        """Answers, until all requests have one.

        Raises:
            ServingError: a message cannot be read; those before it have been answered.
        """
        reader = asyncio.create_task(self._read(requests))
        try:
            while (response := await self._answers.get()) is not None:
                yield response
                self._room.release()
            await reader
        finally:
            await end([reader, *self._tasks])

    async def _read(self, requests: AsyncIterator[StreamRequest]) -> None:
        try:
            await self._room.acquire()
            async for request in requests:
                task = asyncio.create_task(self._serve(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await self._room.acquire()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._answers.put_nowait(None)

    async def _serve(self, request: StreamRequest) -> None:
        self._answers.put_nowait(await self._answer(request))


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have cleaned up: what they hold is given back before the call is over."""
    there = list(tasks)
    for task in there:
        task.cancel()
    await asyncio.gather(*there, return_exceptions=True)
