"""Images that are answered as soon as they are done, for asyncio."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from functools import partial
from typing import TypeAlias

import grpc

from triptych.v1.image_classification_pb2 import ClassifyImageStreamRequest, ClassifyImageStreamResponse
from triptych_client.errors import ServerError, TriptychClientError, UnavailableError
from triptych_client.image_flow import ImageFlow, ImageOptions, Resend
from triptych_client.image_results import ImageOutcome
from triptych_client.image_source import ImageSource, read_image
from triptych_client.status import error_of

# A string: grpc's classes are generic for type checkers only.
AsyncImageMethod: TypeAlias = "grpc.aio.StreamStreamMultiCallable[ClassifyImageStreamRequest, ClassifyImageStreamResponse]"
ImageCall: TypeAlias = "grpc.aio.StreamStreamCall[ClassifyImageStreamRequest, ClassifyImageStreamResponse]"
Images: TypeAlias = Iterable[ImageSource] | AsyncIterable[ImageSource]
Outbox: TypeAlias = asyncio.Queue[ClassifyImageStreamRequest | None]

CUT_OFF = "Internal error from Core"


async def stream_images(method: AsyncImageMethod, images: Images, options: ImageOptions) -> AsyncGenerator[ImageOutcome]:
    """Takes images from the iterator as long as there is room, and gives what is done. Closing it cancels."""
    flow = ImageFlow(options)
    line = AsyncImageLine(method, flow)
    source = iterate(images)
    try:
        while True:
            async for image in source:
                # Reading a file may take long, and other tasks run meanwhile.
                added = await asyncio.to_thread(flow.add, partial(read_image, image))
                if isinstance(added, ImageOutcome):
                    yield added
                else:
                    await line.send(added)
                if not flow.has_room:
                    break
            if not flow.pending:
                break
            yield await line.receive()
        await line.finish()
    finally:
        line.cancel()


def iterate(images: Images) -> AsyncIterator[ImageSource]:
    """An iterator that goes on where the loop before left it."""
    return aiter(images) if isinstance(images, AsyncIterable) else steps(images)


async def steps(images: Iterable[ImageSource]) -> AsyncIterator[ImageSource]:
    """An ordinary iterable's items."""
    for image in images:
        yield image


class AsyncImageLine:
    """ImageLine for asyncio."""

    def __init__(self, method: AsyncImageMethod, flow: ImageFlow) -> None:
        self._method = method
        self._flow = flow
        self._call: ImageCall | None = None
        self._outbox: Outbox = asyncio.Queue()

    async def send(self, request: ClassifyImageStreamRequest) -> None:
        """Send what `flow.add` gave. Never waits for the network."""
        if self._call is None:
            self._connect()
        else:
            await self._outbox.put(request)

    async def receive(self) -> ImageOutcome:
        """Wait for the next outcome. Raises TriptychClientError: the stream failed, retries included."""
        while True:
            outcome = self._flow.take(await self._next())
            if isinstance(outcome, ImageOutcome):
                return outcome
            await self._resend(outcome)

    async def finish(self) -> None:
        """All is answered: let the server end the call."""
        await self._outbox.put(None)
        if self._call is not None:
            with contextlib.suppress(grpc.RpcError):  # what it ends with changes no answer
                async for _ in self._call:
                    raise self._flow.broken("the server answered more images than it was sent")

    def cancel(self) -> None:
        """End the call, here and on the server; does nothing to one that is over."""
        self._outbox.put_nowait(None)  # whoever waits at it would wait for ever
        if self._call is not None:
            self._call.cancel()

    def _connect(self) -> ImageCall:
        self._outbox = asyncio.Queue()
        for request in self._flow.start():
            self._outbox.put_nowait(request)
        call = self._flow.call
        self._call = self._method(requests(self._outbox), timeout=call.timeout_seconds, metadata=call.metadata)
        return self._call

    async def _next(self) -> ClassifyImageStreamResponse:
        while True:
            connected = self._connect() if self._call is None else self._call
            try:
                return await anext(aiter(connected))
            except StopAsyncIteration:
                raise self._flow.broken("the stream ended before its last image was answered") from None
            except grpc.RpcError as failure:
                self.cancel()
                self._call = None
                pause = self._flow.pause_after(self._error_of(failure))
            await asyncio.sleep(pause)

    def _error_of(self, failure: grpc.RpcError) -> TriptychClientError:
        error = error_of(failure, self._flow.call.request_id)
        # Where the server ends a call while something is being sent, grpc.aio loses the server's own status.
        if isinstance(error, ServerError) and error.message == CUT_OFF:
            return UnavailableError("the call ended while sending an image", code="UNAVAILABLE", request_id=error.request_id)
        return error

    async def _resend(self, again: Resend) -> None:
        await asyncio.sleep(again.pause_seconds)
        await self.send(again.request)


async def requests(outbox: Outbox) -> AsyncIterator[ClassifyImageStreamRequest]:
    """What is to be sent, until nothing more is."""
    while (request := await outbox.get()) is not None:
        yield request
