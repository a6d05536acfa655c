"""Classification and generation of images, for every protocol."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from triptych_serving.errors import InvalidInputError
from triptych_serving.models.image.autoencoder import Autoencoder, GeneratedImage, LatentQuery
from triptych_serving.models.image.image_job import ClassifiedImage, ImageJob
from triptych_serving.models.image.image_model import IN_FLIGHT, ImageModel
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.response_cache.cached_calls import RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.rpc.engine_call import Arrival, EngineCall
from triptych_serving.services.model_calls import ModelCalls, converted

LABEL_CHARACTERS = 20  # roughly


@dataclass(frozen=True)
class ImageQuery:
    """A request to classify images."""

    selector: ModelSelector
    files: Sequence[bytes]
    top_k: int | None = None
    field: str = "images[{index}]"  # of the request, for errors
    convert: Callable[[ClassifiedImage], Any] = lambda image: image  # makes what is returned of each result

    def content(self) -> RequestContent:
        """Return all that the results depend on, except the model."""
        return RequestContent((list(self.files), self.top_k, self.field), sum(map(len, self.files)))


class ImageCalls(ModelCalls):
    """Classify images, for every protocol."""

    async def classify(self, query: ImageQuery, deadline: float | None) -> tuple[list[Any], ModelUse]:
        """Return the labels of each image, converted and in order; `deadline` in clock seconds.

        Raises:
            ServingError: the images cannot be classified.
        """
        model = self._registry().find_image(query.selector)
        if not query.files:
            raise InvalidInputError("images", "there are no images")
        return await self._results(model, query.content, deadline, partial(self._classify, model, query, deadline))

    async def _classify(self, model: ImageModel, query: ImageQuery, deadline: float | None, use: ModelUse) -> list[Any]:
        with model.limiter.admit(len(query.files), deadline):
            use.rows = len(query.files)
            jobs = (
                model.begin(data, query.top_k, query.field.format(index=index), deadline)
                for index, data in enumerate(query.files)
            )
            results = await _collect(jobs, use)
        size = LABEL_CHARACTERS * sum(len(result.labels) for result in results)
        return await self._offload.run_steps(size, deadline, converted(results, query.convert))


async def _collect(jobs: Iterable[ImageJob], use: ModelUse) -> list[ClassifiedImage]:
    """Return results in order, with IN_FLIGHT jobs at a time. No job is running when it returns or raises."""
    running: deque[ImageJob] = deque()
    done: list[ImageJob] = []
    results = []

    async def finish_first() -> None:
        await asyncio.wrap_future(running[0].done)
        results.append(running[0].result())
        done.append(running.popleft())

    try:
        for job in jobs:
            running.append(job)
            if len(running) == IN_FLIGHT:
                await finish_first()
        while running:
            await finish_first()
    finally:
        for job in running:
            job.cancel()
    # The stages: all decoding, the longest wait, and from the first run of the graph to the last.
    slowest = max(done, key=lambda job: job.waited)
    arrived = min(job.arrived for job in done)
    use.stages["preprocess"] = (arrived, arrived + sum(job.decode_seconds for job in done))
    use.stages["queue"] = (slowest.started - slowest.waited, slowest.started)
    use.stages["inference"] = (min(job.started for job in done), max(job.ended for job in done))
    return results


class LatentCalls(ModelCalls):
    """Generate images with autoencoders, for every protocol."""

    async def generate(
        self, selector: ModelSelector, query: LatentQuery, context: GrpcContext
    ) -> tuple[list[GeneratedImage], ModelUse]:
        """Return the images of a request, in order. Raises ServingError: the request cannot be served."""
        arrival = Arrival.now(context)
        model = self._registry().find_autoencoder(selector)
        compute = partial(self._compute, model, query, arrival)
        return await self._results(model, partial(_latent_content, query), arrival.deadline, compute)

    async def _compute(self, model: Autoencoder, query: LatentQuery, arrival: Arrival, use: ModelUse) -> list[GeneratedImage]:
        work = await self._offload.run_steps(sum(map(len, query.images)), arrival.deadline, model.read_steps(query))
        if work.items:
            await EngineCall.run(model.encoder, work, arrival, use)
        encoding = dict(use.stages)
        decoding = model.decoding(query, list(work.read()))
        call = await EngineCall.run(model.decoder, decoding, Arrival(time.monotonic(), arrival.deadline), use)
        if encoding:  # the first queue, and inference from the encoder's start to the decoder's end
            use.stages.update({**encoding, "inference": (encoding["inference"][0], use.stages["inference"][1])})
        images = converted(decoding.read(), lambda image: image)
        return await call.postprocessed(self._offload.run_steps(decoding.size, arrival.deadline, images))


def _latent_content(query: LatentQuery) -> RequestContent | None:
    """Return all that the results depend on, except the model; None if they are random."""
    if not query.images and not query.latents and query.seed is None:
        return None
    latents = [list(values) for values in query.latents]
    size = sum(map(len, query.images)) + 8 * sum(map(len, latents))
    return RequestContent((list(query.images), query.steps, latents, query.count, query.seed), size)
