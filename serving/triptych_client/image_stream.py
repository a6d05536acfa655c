"""Images that are answered as soon as they are done."""

import contextlib
import time
from collections.abc import Generator, Iterable
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

import grpc

from triptych.v1.image_classification_pb2 import ClassifyImageStreamRequest, ClassifyImageStreamResponse
from triptych_client.image_flow import ImageFlow, ImageOptions, Resend
from triptych_client.image_results import ImageOutcome
from triptych_client.image_source import ImageSource, read_image
from triptych_client.status import error_of

# A string: grpc's classes are generic for type checkers only.
ImageMethod: TypeAlias = "grpc.StreamStreamMultiCallable[ClassifyImageStreamRequest, ClassifyImageStreamResponse]"
ImageCall: TypeAlias = "grpc._CallIterator[ClassifyImageStreamResponse]"


def stream_images(method: ImageMethod, images: Iterable[ImageSource], options: ImageOptions) -> Generator[ImageOutcome]:
    """Takes images from the iterator, in this thread, as long as there is room, and gives what is done. Closing it cancels."""
    flow = ImageFlow(options)
    line = ImageLine(method, flow)
    source = iter(images)
    try:
        while True:
            for image in source:
                added = flow.add(partial(read_image, image))
                if isinstance(added, ImageOutcome):
                    yield added
                else:
                    line.send(added)
                if not flow.has_room:
                    break
            if not flow.pending:
                break
            yield line.receive()
        line.finish()
    finally:
        line.cancel()


class ImageLine:
    """The call that is under way, and after a failure the next one."""

    def __init__(self, method: ImageMethod, flow: ImageFlow) -> None:
        self._method = method
        self._flow = flow
        self._call: ImageCall | None = None
        self._outbox: SimpleQueue[ClassifyImageStreamRequest | None] = SimpleQueue()

    def send(self, request: ClassifyImageStreamRequest) -> None:
        """Send what `flow.add` gave. Never waits."""
        if self._call is None:
            self._connect()
        else:
            self._outbox.put(request)

    def receive(self) -> ImageOutcome:
        """Wait for the next outcome. Raises TriptychClientError: the stream failed, retries included."""
        while True:
            outcome = self._flow.take(self._next())
            if isinstance(outcome, ImageOutcome):
                return outcome
            self._resend(outcome)

    def finish(self) -> None:
        """All is answered: let the server end the call."""
        self._outbox.put(None)
        with contextlib.suppress(grpc.RpcError):  # what it ends with changes no answer
            for _ in self._call or ():
                raise self._flow.broken("the server answered more images than it was sent")

    def cancel(self) -> None:
        """End the call, here and on the server; does nothing to one that is over."""
        self._outbox.put(None)  # whoever waits at it would wait for ever
        if self._call is not None:
            self._call.cancel()

    def _connect(self) -> ImageCall:
        self._outbox = SimpleQueue()
        for request in self._flow.start():
            self._outbox.put(request)
        call = self._flow.call
        self._call = self._method(iter(self._outbox.get, None), timeout=call.timeout_seconds, metadata=call.metadata)
        return self._call

    def _next(self) -> ClassifyImageStreamResponse:
        while True:
            connected = self._connect() if self._call is None else self._call
            try:
                return next(connected)
            except StopIteration:
                raise self._flow.broken("the stream ended before its last image was answered") from None
            except grpc.RpcError as failure:
                self.cancel()
                self._call = None
                pause = self._flow.pause_after(error_of(failure, self._flow.call.request_id))
            time.sleep(pause)

    def _resend(self, again: Resend) -> None:
        time.sleep(again.pause_seconds)
        self.send(again.request)
