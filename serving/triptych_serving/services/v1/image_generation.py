"""triptych.v1.ImageGenerationService."""

from typing import Any

from triptych.v1 import image_generation_pb2 as pb
from triptych.v1 import image_generation_pb2_grpc
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.image_generator import ImageGenerator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.generation.text import Generation
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.generation_calls import GenerationCalls, GenerationQuery
from triptych_serving.services.v1.codec import joined, optional_from, options_from, selector_from, served_by


class ImageGenerationServicer(image_generation_pb2_grpc.ImageGenerationServiceServicer):
    """Serve CompleteImage. Responses are returned packed."""

    def __init__(self, calls: GenerationCalls) -> None:
        self._calls = calls

    async def CompleteImage(self, request: pb.CompleteImageRequest, context: GrpcContext) -> Any:
        if not request.images:
            raise InvalidInputError("images", "there are no images")
        generation = GenerationRequest(
            images=list(request.images),
            rows=optional_from(request, "rows"),
            options=options_from(request.options),
            n=optional_from(request, "n"),
        )
        query = GenerationQuery(selector_from(request), generation, _packed)
        completions, use = await self._calls.generate(query, context)
        return joined(completions, pb.CompleteImageResponse(**served_by(use)))


def _packed(generator: Generator, generation: Generation) -> bytes:
    assert isinstance(generator, ImageGenerator)
    images = [pb.CompletedImage(image=choice.image, score=choice.score) for choice in generation.choices]
    completion = pb.ImageCompletion(images=images, rows=generator.rows_of(generation))
    return pb.CompleteImageResponse(completions=[completion]).SerializeToString()
