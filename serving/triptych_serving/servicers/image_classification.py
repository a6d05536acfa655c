"""triptych.v1.ImageClassificationService."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from triptych.v1 import image_classification_pb2, image_classification_pb2_grpc
from triptych_serving.errors import InvalidInputError
from triptych_serving.imagejob import ImageJob
from triptych_serving.imagemodel import IN_FLIGHT
from triptych_serving.registry import Registry
from triptych_serving.results import ClassifiedImage
from triptych_serving.servicers.codec import timing_to, wish_from
from triptych_serving.servicers.imagestream import ImageStream
from triptych_serving.servicers.job import Arrival
from triptych_serving.servicers.labels import labels_to
from triptych_serving.servicers.options import optional_from
from triptych_serving.servicers.status import Context, public_error, request_id_now, status_of

StreamRequest = image_classification_pb2.ClassifyImageStreamRequest
StreamResponse = image_classification_pb2.ClassifyImageStreamResponse


class ImageClassificationServicer(image_classification_pb2_grpc.ImageClassificationServiceServicer):
    """ClassifyImage and ClassifyImageStream.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
    """

    def __init__(self, registry: Callable[[], Registry]) -> None:
        self._registry = registry

    async def ClassifyImage(
        self, request: image_classification_pb2.ClassifyImageRequest, context: Context
    ) -> image_classification_pb2.ClassifyImageResponse:
        deadline = Arrival.of(context).deadline
        model = self._registry().find_image(wish_from(request))
        top_k, total = optional_from(request, "top_k"), len(request.images)
        if not total:
            raise InvalidInputError("images", "there are no images")
        with model.gate.admit(total):
            jobs = (model.begin(data, top_k, f"images[{index}]", deadline) for index, data in enumerate(request.images))
            results, timing = await _all_done(jobs)
        return image_classification_pb2.ClassifyImageResponse(
            results=results, model=model.name, model_version=str(model.version), timing=timing_to(timing)
        )

    async def ClassifyImageStream(
        self, requests: AsyncIterator[StreamRequest], context: Context
    ) -> AsyncIterator[StreamResponse]:
        deadline = Arrival.of(context).deadline
        stream = ImageStream(lambda request: self._answer(request, deadline), IN_FLIGHT)
        async for response in stream.responses(requests):
            yield response

    async def _answer(self, request: StreamRequest, deadline: float | None) -> StreamResponse:
        """One image's result, or its error."""
        try:
            return await self._classify(request, deadline)
        except Exception as error:  # whatever it is, the stream's other images must be answered
            request_id = request_id_now.get()
            status = status_of(public_error(error, request_id), request_id)
            return StreamResponse(image_id=request.image_id, error=status)

    async def _classify(self, request: StreamRequest, deadline: float | None) -> StreamResponse:
        model = self._registry().find_image(wish_from(request))
        with model.gate.admit(1):
            job = model.begin(request.image, optional_from(request, "top_k"), "image", deadline)
            results, timing = await _all_done([job])
        return StreamResponse(
            image_id=request.image_id,
            result=results[0],
            model=model.name,
            model_version=str(model.version),
            timing=timing_to(timing),
        )


async def _all_done(jobs: Iterable[ImageJob]) -> tuple[list[image_classification_pb2.ClassifiedImage], dict[str, float]]:
    """Results in order, and where the time went. Takes a new job whenever one is done; all are over when it leaves."""
    running: deque[ImageJob] = deque()
    done: list[ImageJob] = []
    results = []
    try:
        for job in jobs:
            running.append(job)
            if len(running) == IN_FLIGHT:
                results.append(await _result(running[0]))
                done.append(running.popleft())
        while running:
            results.append(await _result(running[0]))
            done.append(running.popleft())
    finally:
        for job in running:
            job.cancel()
    return results, _seconds(done)


async def _result(job: ImageJob) -> image_classification_pb2.ClassifiedImage:
    await asyncio.wrap_future(job.done)
    return _image_to(job.result())


def _image_to(image: ClassifiedImage) -> image_classification_pb2.ClassifiedImage:
    return image_classification_pb2.ClassifiedImage(labels=labels_to(image.labels), width=image.width, height=image.height)


def _seconds(jobs: list[ImageJob]) -> dict[str, float]:
    """The longest wait, all decoding, and from the first computation to the last."""
    return {
        "queue": max(job.waited for job in jobs),
        "preprocess": sum(job.decode_seconds for job in jobs),
        "inference": max(job.ended for job in jobs) - min(job.started for job in jobs),
    }
