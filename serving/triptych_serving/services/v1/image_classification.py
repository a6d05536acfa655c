"""triptych.v1.ImageClassificationService."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from triptych.v1 import image_classification_pb2, image_classification_pb2_grpc
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.engine_call import Arrival
from triptych_serving.rpc.request_stream import RequestStream
from triptych_serving.rpc.status import public_error, status_of
from triptych_serving.services.image_calls import ImageCalls, ImageQuery
from triptych_serving.services.v1.codec import converter, joined, optional_from, packer, selector_from, served_by

_image_to = converter(image_classification_pb2.ClassifiedImage.DESCRIPTOR)
_packed_image = packer(image_classification_pb2.ClassifyImageResponse)
StreamRequest = image_classification_pb2.ClassifyImageStreamRequest
StreamResponse = image_classification_pb2.ClassifyImageStreamResponse


class ImageClassificationServicer(image_classification_pb2_grpc.ImageClassificationServiceServicer):
    """Serve ClassifyImage and ClassifyImageStream. Single responses are returned in parts."""

    def __init__(self, calls: ImageCalls) -> None:
        self._calls = calls

    async def ClassifyImage(self, request: image_classification_pb2.ClassifyImageRequest, context: GrpcContext) -> Any:
        query = ImageQuery(selector_from(request), request.images, optional_from(request, "top_k"), convert=_packed_image)
        results, use = await self._calls.classify(query, Arrival.now(context).deadline)
        return joined(results, image_classification_pb2.ClassifyImageResponse(**served_by(use)))

    def ClassifyImageStream(
        self, requests: AsyncIterator[StreamRequest], context: GrpcContext
    ) -> AsyncIterator[StreamResponse]:
        deadline = Arrival.now(context).deadline
        stream = RequestStream[StreamRequest, StreamResponse](lambda request: self._answer(request, deadline))
        return stream.responses(requests)

    async def _answer(self, request: StreamRequest, deadline: float | None) -> AsyncGenerator[StreamResponse]:
        """Yield the result of one image, or its error."""
        query = ImageQuery(selector_from(request), [request.image], optional_from(request, "top_k"), "image", _image_to)
        try:
            [result], use = await self._calls.classify(query, deadline)
        except Exception as error:  # any error: the other images of the stream must be answered
            request_id = current_call.get().request_id
            status = status_of(public_error(error, request_id), request_id)
            yield StreamResponse(image_id=request.image_id, error=status)
        else:
            yield StreamResponse(image_id=request.image_id, result=result, **served_by(use))
