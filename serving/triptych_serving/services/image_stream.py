"""Many images on one stream."""

from collections.abc import Awaitable, Callable

from triptych.v1 import image_classification_pb2
from triptych_serving.rpc.request_stream import RequestStream

StreamRequest = image_classification_pb2.ClassifyImageStreamRequest
StreamResponse = image_classification_pb2.ClassifyImageStreamResponse


class ImageStream(RequestStream[StreamRequest, StreamResponse]):
    """One call's images; an image is in flight until its answer is on its way.

    Args:
        answer: one image's answer; raises nothing.
        in_flight: images that are read and not yet answered.
    """

    def __init__(self, answer: Callable[[StreamRequest], Awaitable[StreamResponse]], in_flight: int) -> None:
        super().__init__(in_flight)
        self._answer = answer

    def _on_sent(self) -> None:
        self._room.release()

    async def _serve(self, request: StreamRequest) -> None:
        self._responses.put_nowait(await self._answer(request))
