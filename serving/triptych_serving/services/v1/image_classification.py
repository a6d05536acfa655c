"""triptych.v1.ImageClassificationService."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from triptych.v1 import image_classification_pb2, image_classification_pb2_grpc
from triptych_serving.models.image.image_job import ClassifiedImage
from triptych_serving.models.image.image_model import IN_FLIGHT
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.engine_call import Arrival
from triptych_serving.rpc.status import public_error, status_of
from triptych_serving.services.image_calls import ImageCalls, ImageQuery
from triptych_serving.services.image_stream import ImageStream
from triptych_serving.services.options import optional_from
from triptych_serving.services.v1.codec import wish_from
from triptych_serving.services.v1.labels import labels_to
from triptych_serving.services.v1.served import served_by

StreamRequest = image_classification_pb2.ClassifyImageStreamRequest
StreamResponse = image_classification_pb2.ClassifyImageStreamResponse


class ImageClassificationServicer(image_classification_pb2_grpc.ImageClassificationServiceServicer):
    """ClassifyImage and ClassifyImageStream."""

    def __init__(self, calls: ImageCalls) -> None:
        self._calls = calls

    async def ClassifyImage(
        self, request: image_classification_pb2.ClassifyImageRequest, context: GrpcContext
    ) -> image_classification_pb2.ClassifyImageResponse:
        images = ImageQuery(wish_from(request), request.images, optional_from(request, "top_k"))
        results, use = await self._calls.classify(images, Arrival.now(context).deadline)
        return image_classification_pb2.ClassifyImageResponse(results=map(_image_to, results), **served_by(use))

    async def ClassifyImageStream(
        self, requests: AsyncIterator[StreamRequest], context: GrpcContext
    ) -> AsyncIterator[StreamResponse]:
        deadline = Arrival.now(context).deadline
        stream = ImageStream(lambda request: self._answer(request, deadline), IN_FLIGHT)
        async with aclosing(stream.responses(requests)) as responses:
            async for response in responses:
                yield response

    async def _answer(self, request: StreamRequest, deadline: float | None) -> StreamResponse:
        """One image's result, or its error."""
        images = ImageQuery(wish_from(request), [request.image], optional_from(request, "top_k"), field="image")
        try:
            [result], use = await self._calls.classify(images, deadline)
        except Exception as error:  # whatever it is, the stream's other images must be answered
            request_id = current_call.get().request_id
            status = status_of(public_error(error, request_id), request_id)
            return StreamResponse(image_id=request.image_id, error=status)
        return StreamResponse(image_id=request.image_id, result=_image_to(result), **served_by(use))


def _image_to(image: ClassifiedImage) -> image_classification_pb2.ClassifiedImage:
    return image_classification_pb2.ClassifiedImage(labels=labels_to(image.labels), width=image.width, height=image.height)
