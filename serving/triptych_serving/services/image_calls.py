"""How images are classified, whatever protocol they came in."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from triptych_serving.errors import InvalidInputError
from triptych_serving.models.image.image_job import ClassifiedImage, ImageJob
from triptych_serving.models.image.image_model import IN_FLIGHT, ImageModel
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import CachedCalls, RequestContent
from triptych_serving.rpc.call_context import ModelUse, UseModel


@dataclass(frozen=True)
class ImageQuery:
    """What is to be classified, and by which model."""

    selector: ModelSelector
    files: Sequence[bytes]
    top_k: int | None = None
    field: str = "images[{index}]"  # of the request, for errors


class ImageCalls:
    """Shared by the servicers that classify images.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        repeated: knows what was asked before.
    """

    def __init__(self, registry: Callable[[], Registry], repeated: CachedCalls) -> None:
        self._registry = registry
        self._repeated = repeated

    async def classify(self, images: ImageQuery, deadline: float | None) -> tuple[list[ClassifiedImage], ModelUse]:
        """Every image's labels, in order.

        Raises:
            ServingError: whatever kept the images from being classified.
        """
        model = self._registry().find_image(images.selector)
        if not images.files:
            raise InvalidInputError("images", "there are no images")
        with UseModel(model) as use:
            content, compute = partial(_content_of, images), partial(_classify, model, images, deadline, use)
            return await self._repeated.results(model, use, content, deadline, compute), use


def _content_of(images: ImageQuery) -> RequestContent:
    return RequestContent((list(images.files), images.top_k, images.field), sum(map(len, images.files)))


async def _classify(model: ImageModel, images: ImageQuery, deadline: float | None, use: ModelUse) -> list[ClassifiedImage]:
    with model.gate.admit(len(images.files), deadline):
        use.rows = len(images.files)
        jobs = (
            model.begin(data, images.top_k, images.field.format(index=index), deadline)
            for index, data in enumerate(images.files)
        )
        return await _all_done(jobs, use)


async def _all_done(jobs: Iterable[ImageJob], use: ModelUse) -> list[ClassifiedImage]:
    """Results in order. Takes a new job whenever one is done; all are over when it leaves."""
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
    _note(done, use)
    return results


async def _result(job: ImageJob) -> ClassifiedImage:
    await asyncio.wrap_future(job.done)
    return job.result()


def _note(done: Sequence[ImageJob], use: ModelUse) -> None:
    """All decoding, the longest wait, and from the first computation to the last."""
    slowest = max(done, key=lambda job: job.waited)
    arrived = min(job.arrived for job in done)
    use.stages["preprocess"] = (arrived, arrived + sum(job.decode_seconds for job in done))
    use.stages["queue"] = (slowest.started - slowest.waited, slowest.started)
    use.stages["inference"] = (min(job.started for job in done), max(job.ended for job in done))
