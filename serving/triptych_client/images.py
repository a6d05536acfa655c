"""ClassifyImageStream: images that are classified in any order, blocking and for asyncio."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Timer
from typing import Any, TypeAlias

import grpc

from triptych.v1.image_classification_pb2 import ClassifyImageStreamRequest, ClassifyImageStreamResponse
from triptych_client.arguments import ClassifyImageArguments, check_names
from triptych_client.call import Attempts, Call
from triptych_client.connection import RpcMethod
from triptych_client.errors import DeadlineExceededError, ResourceExhaustedError, ServerError, TriptychClientError
from triptych_client.files import ImageSource, read_image
from triptych_client.messages import fill, read, served_from
from triptych_client.results import ClassifiedImage, ImageOutcome
from triptych_client.status import broken_contract, error_of, error_of_async_stream, error_of_status

Images: TypeAlias = Iterable[ImageSource] | AsyncIterable[ImageSource]

CLASSIFY_IMAGE_STREAM = RpcMethod(
    "/triptych.v1.ImageClassificationService/ClassifyImageStream", ClassifyImageStreamRequest, ClassifyImageStreamResponse
)


@dataclass(frozen=True, slots=True)
class Resend:
    """An image that the server wants again after a pause."""

    request: ClassifyImageStreamRequest
    pause_seconds: float


class ImageExchange:
    """The images of one stream that are in flight, without input and output.

    Requests without a response are kept, so that a new connection can send them again.

    Args:
        arguments: Those of `triptych_client.arguments.ClassifyImageArguments`, without those of the call.
        call: Identity, timeout and retries; the timeout is the longest time without progress.
        max_message_bytes: Limit of the client; a larger image gets an error.

    Raises:
        TypeError: An argument is unknown.
        ValueError: An argument is out of range.
    """

    def __init__(self, arguments: Mapping[str, Any], call: Call, in_flight: int, max_message_bytes: int) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}, must be 1 or more")
        check_names("classify_images", arguments, ClassifyImageArguments)
        self.call = call
        self.pending: dict[int, ClassifyImageStreamRequest] = {}
        self._in_flight = in_flight
        self._max_message_bytes = max_message_bytes
        self._options = fill(ClassifyImageStreamRequest, arguments)
        self._attempts = Attempts(call)  # of connections
        self._rejected: dict[int, Attempts] = {}  # of images that the server wants again later, by index
        self._deadline = 0.0  # of the connection, in seconds of the monotonic clock
        self._moved = False
        self._taken = 0

    @property
    def has_room(self) -> bool:
        """True if one more image may be sent."""
        return len(self.pending) < self._in_flight

    def start(self) -> list[ClassifyImageStreamRequest]:
        """Return the first requests for a new connection."""
        self._moved = False
        self._rejected.clear()
        self._deadline = time.monotonic() + self.call.timeout_seconds
        return list(self.pending.values())

    def add(self, read_next: Callable[[], bytes]) -> ClassifyImageStreamRequest | ImageOutcome:
        """Return the request for the next image, or the outcome if it cannot be sent."""
        index, self._taken = self._taken, self._taken + 1
        try:
            request = self._request(index, read_next())
        except (OSError, TypeError, ValueError, ResourceExhaustedError) as error:
            return ImageOutcome(index, error=error)
        self.pending[index] = request
        self._moved = True
        return request

    def take(self, message: ClassifyImageStreamResponse) -> ImageOutcome | Resend:
        """Process a response. Raises ServerError if it has no outcome, or belongs to no image in flight."""
        index = message.image_id
        request = self.pending.get(index)
        if request is None or message.WhichOneof("outcome") is None:
            raise self.broken(f"the server sent an unexpected response for image {index}")
        if message.HasField("error"):
            return self._reject(request, error_of_status(message.error, self.call.request_id))
        self._settle(index)
        return ImageOutcome(index, read(ClassifiedImage, message.result, **served_from(message, self.call.request_id)))

    def pause_after(self, error: TriptychClientError) -> float:
        """Return the seconds to wait before the images in flight are sent again.

        Raises:
            TriptychClientError: No retry is possible, or there was no progress since the last one.
        """
        if self._moved:
            # One connection ends with the deadline of its call, the stream continues as long as there is progress.
            self._moved, self._attempts = False, Attempts(self.call)
            if isinstance(error, DeadlineExceededError):
                return 0.0
        return self._attempts.pause_after(error)

    def broken(self, message: str) -> ServerError:
        """Make the error for a server that violates the contract."""
        return broken_contract(message, self.call.request_id)

    def _request(self, index: int, image: bytes) -> ClassifyImageStreamRequest:
        request = ClassifyImageStreamRequest(image_id=index, image=image)
        request.MergeFrom(self._options)
        # gRPC would end the whole stream.
        if (size := request.ByteSize()) > self._max_message_bytes:
            message = (
                f"the image's message has {size:,} bytes, `max_message_bytes` of the client is {self._max_message_bytes:,}"
            )
            raise ResourceExhaustedError(message, code="RESOURCE_EXHAUSTED", request_id=self.call.request_id)
        return request

    def _reject(self, request: ClassifyImageStreamRequest, error: TriptychClientError) -> ImageOutcome | Resend:
        index = request.image_id
        if index not in self._rejected:  # without progress, there is no other connection after this one
            self._rejected[index] = Attempts(self.call, deadline=None if self._moved else self._deadline)
        try:
            return Resend(request, self._rejected[index].pause_after(error))
        except TriptychClientError:
            self._settle(index)
            return ImageOutcome(index, error=error)

    def _settle(self, index: int) -> None:
        del self.pending[index]
        self._rejected.pop(index, None)
        self._moved = True


def stream_images(channel: grpc.Channel, images: Iterable[ImageSource], exchange: ImageExchange) -> Generator[ImageOutcome]:
    """Take images, in the calling thread, as long as there is room, and yield outcomes. Closing the generator cancels."""
    connection = _ImageConnection(channel, exchange)
    source = iter(images)
    try:
        while True:
            for image in source:
                added = exchange.add(partial(read_image, image))
                if isinstance(added, ImageOutcome):
                    yield added
                else:
                    connection.send(added)
                if not exchange.has_room:
                    break
            if not exchange.pending:
                break
            yield connection.receive()
        connection.finish()
    finally:
        connection.cancel()


class _Connection:
    """The running call, replaced by a new one after a failure: everything that does not wait.

    Args:
        new_outbox: Makes a queue of requests; None ends it.
        requests: Makes the iterator over a queue that gRPC reads.
    """

    def __init__(
        self, channel: Any, exchange: ImageExchange, new_outbox: Callable[[], Any], requests: Callable[[Any], Any]
    ) -> None:
        self._channel = channel
        self._exchange = exchange
        self._call: Any = None
        self._new_outbox, self._requests = new_outbox, requests
        self._outbox = new_outbox()

    def send(self, request: ClassifyImageStreamRequest, pause_seconds: float = 0.0) -> None:
        """Send a request that `exchange.add` has returned, after a pause; without waiting."""
        if self._call is None:
            self._connect()
        elif pause_seconds:
            self._put_later(self._outbox, request, pause_seconds)
        else:
            self._outbox.put_nowait(request)

    def _put_later(self, outbox: Any, request: ClassifyImageStreamRequest, pause_seconds: float) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel the call, here and on the server; no effect after its end."""
        self._outbox.put_nowait(None)  # ends the thread or task that reads the queue
        if self._call is not None:
            self._call.cancel()

    def _connect(self) -> Any:
        self._outbox = self._new_outbox()
        for request in self._exchange.start():
            self._outbox.put_nowait(request)
        call = self._exchange.call
        requests = self._requests(self._outbox)
        self._call = call.start(self._channel.stream_stream, CLASSIFY_IMAGE_STREAM, requests, call.timeout_seconds)
        return self._call

    def _fail(self, error: TriptychClientError) -> float:
        """Give the call up and return the seconds to wait before the next one. Raises as `exchange.pause_after`."""
        self.cancel()
        self._call = None
        return self._exchange.pause_after(error)


class _ImageConnection(_Connection):
    """The blocking connection."""

    def __init__(self, channel: grpc.Channel, exchange: ImageExchange) -> None:
        super().__init__(channel, exchange, SimpleQueue, lambda outbox: iter(outbox.get, None))

    def _put_later(self, outbox: Any, request: ClassifyImageStreamRequest, pause_seconds: float) -> None:
        timer = Timer(pause_seconds, outbox.put_nowait, (request,))
        timer.daemon = True
        timer.start()

    def receive(self) -> ImageOutcome:
        """Wait for the next outcome. Raises TriptychClientError if the last attempt failed."""
        while isinstance(outcome := self._exchange.take(self._next()), Resend):
            self.send(outcome.request, outcome.pause_seconds)
        return outcome

    def finish(self) -> None:
        """Let the server end the call after the last outcome."""
        self._outbox.put_nowait(None)
        with contextlib.suppress(grpc.RpcError):  # all outcomes are known
            for _ in self._call or ():
                raise self._exchange.broken("the server sent more responses than it got images")

    def _next(self) -> ClassifyImageStreamResponse:
        while True:
            call = self._connect() if self._call is None else self._call
            try:
                response: ClassifyImageStreamResponse = next(call)
                return response
            except StopIteration:
                raise self._exchange.broken("the stream ended before its last response") from None
            except grpc.RpcError as failure:
                pause = self._fail(error_of(failure, self._exchange.call.request_id))
            time.sleep(pause)


async def stream_images_async(
    channel: grpc.aio.Channel, images: Images, exchange: ImageExchange
) -> AsyncGenerator[ImageOutcome]:
    """`stream_images` for asyncio; files are read in a thread."""
    connection = _AsyncImageConnection(channel, exchange)
    source = _iterate(images)
    try:
        while True:
            async for image in source:
                added = await asyncio.to_thread(exchange.add, partial(read_image, image))
                if isinstance(added, ImageOutcome):
                    yield added
                else:
                    connection.send(added)
                if not exchange.has_room:
                    break
            if not exchange.pending:
                break
            yield await connection.receive()
        await connection.finish()
    finally:
        connection.cancel()


async def _iterate(images: Images) -> AsyncIterator[ImageSource]:
    if isinstance(images, AsyncIterable):
        async for image in images:
            yield image
    else:
        for image in images:
            yield image


class _AsyncImageConnection(_Connection):
    """The connection for asyncio."""

    def __init__(self, channel: grpc.aio.Channel, exchange: ImageExchange) -> None:
        super().__init__(channel, exchange, asyncio.Queue, _until_none)

    def _put_later(self, outbox: Any, request: ClassifyImageStreamRequest, pause_seconds: float) -> None:
        asyncio.get_running_loop().call_later(pause_seconds, outbox.put_nowait, request)

    async def receive(self) -> ImageOutcome:
        """Wait for the next outcome. Raises TriptychClientError if the last attempt failed."""
        while isinstance(outcome := self._exchange.take(await self._next()), Resend):
            self.send(outcome.request, outcome.pause_seconds)
        return outcome

    async def finish(self) -> None:
        """Let the server end the call after the last outcome."""
        self._outbox.put_nowait(None)
        if self._call is not None:
            with contextlib.suppress(grpc.RpcError):  # all outcomes are known
                async for _ in self._call:
                    raise self._exchange.broken("the server sent more responses than it got images")

    async def _next(self) -> ClassifyImageStreamResponse:
        while True:
            call = self._connect() if self._call is None else self._call
            try:
                with self._exchange.call.cancellable():
                    response: ClassifyImageStreamResponse = await anext(aiter(call))
                return response
            except StopAsyncIteration:
                raise self._exchange.broken("the stream ended before its last response") from None
            except grpc.RpcError as failure:
                pause = self._fail(error_of_async_stream(failure, self._exchange.call.request_id))
            await asyncio.sleep(pause)


async def _until_none(outbox: "asyncio.Queue[ClassifyImageStreamRequest | None]") -> AsyncIterator[ClassifyImageStreamRequest]:
    while (request := await outbox.get()) is not None:
        yield request
