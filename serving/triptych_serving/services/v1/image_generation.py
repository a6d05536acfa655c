"""triptych.v1.ImageGenerationService."""

from collections.abc import Sequence
from typing import Any

from triptych.v1 import image_generation_pb2 as pb
from triptych.v1 import image_generation_pb2_grpc
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.image_generator import ImageGenerator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.generation.text import Generation
from triptych_serving.models.image.autoencoder import DEFAULT_STEPS, LatentQuery
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.decode_calls import DecodeCalls
from triptych_serving.services.generation_calls import GenerationQuery
from triptych_serving.services.image_calls import LatentCalls
from triptych_serving.services.v1.codec import converter, joined, optional_from, options_from, selector_from, served_by

_image_to = converter(pb.GeneratedImage.DESCRIPTOR)


class ImageGenerationServicer(image_generation_pb2_grpc.ImageGenerationServiceServicer):
    """Serve CompleteImage, whose responses are returned packed, and the methods of autoencoders."""

    def __init__(self, calls: DecodeCalls, latents: LatentCalls) -> None:
        self._calls, self._latents = calls, latents

    async def CompleteImage(self, request: pb.CompleteImageRequest, context: GrpcContext) -> Any:
        generation = GenerationRequest(
            images=_files(request.images),
            rows=optional_from(request, "rows"),
            options=options_from(request.options),
            n=optional_from(request, "n"),
        )
        query = GenerationQuery(selector_from(request), generation, _packed)
        completions, use = await self._calls.run(query, context)
        return joined(completions, pb.CompleteImageResponse(**served_by(use)))

    async def GenerateImages(self, request: pb.GenerateImagesRequest, context: GrpcContext) -> pb.GenerateImagesResponse:
        latents = [each.values for each in request.latents]
        query = LatentQuery(latents=latents, count=optional_from(request, "count"), seed=optional_from(request, "seed"))
        return pb.GenerateImagesResponse(**await self._generated(request, query, context))

    async def ReconstructImage(self, request: pb.ReconstructImageRequest, context: GrpcContext) -> pb.ReconstructImageResponse:
        query = LatentQuery(images=_files(request.images))
        return pb.ReconstructImageResponse(**await self._generated(request, query, context))

    async def Interpolate(self, request: pb.InterpolateRequest, context: GrpcContext) -> pb.InterpolateResponse:
        steps = optional_from(request, "steps")
        query = LatentQuery(images=_files(request.images), steps=DEFAULT_STEPS if steps is None else steps)
        return pb.InterpolateResponse(**await self._generated(request, query, context))

    async def _generated(self, request: Any, query: LatentQuery, context: GrpcContext) -> dict[str, Any]:
        """Return the fields of a response."""
        images, use = await self._latents.generate(selector_from(request), query, context)
        return {"images": map(_image_to, images), **served_by(use)}


def _files(images: Sequence[bytes]) -> list[bytes]:
    if not images:
        raise InvalidInputError("images", "there are no images")
    return list(images)


def _packed(generator: Generator, generation: Generation) -> bytes:
    assert isinstance(generator, ImageGenerator)
    images = [pb.CompletedImage(image=choice.image, score=choice.score) for choice in generation.choices]
    completion = pb.ImageCompletion(images=images, rows=generator.rows_of(generation))
    return pb.CompleteImageResponse(completions=[completion]).SerializeToString()
