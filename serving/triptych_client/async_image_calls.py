"""The calls to the image service, for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Unpack

from triptych_client.arguments import ClassifyImageArguments
from triptych_client.async_asking import AsyncAsking
from triptych_client.async_image_stream import Images, stream_images
from triptych_client.image_flow import ImageOptions
from triptych_client.image_job import ClassifyImageJob
from triptych_client.image_results import ClassifiedImage, ImageOutcome
from triptych_client.image_source import ImageSource, read_images
from triptych_client.results import Results


class AsyncImageCalls(AsyncAsking):
    """ImageCalls for asyncio: the same methods, arguments, results and errors. Files are read in a thread."""

    async def classify_image(self, image: ImageSource, **arguments: Unpack[ClassifyImageArguments]) -> ClassifiedImage:
        """Rank the model's labels for an image."""
        return (await self.classify_image_many([image], **arguments))[0]

    async def classify_image_many(
        self, images: Sequence[ImageSource], **arguments: Unpack[ClassifyImageArguments]
    ) -> Results[ClassifiedImage]:
        """Rank the model's labels for many images; the result has their order."""
        call = self._with_call(arguments)
        job = ClassifyImageJob(images=await asyncio.to_thread(read_images, images), **call)
        return await self._ask(self._connection.image_classification.ClassifyImage, job)

    def classify_images(
        self, images: Images, *, in_flight: int = 16, **arguments: Unpack[ClassifyImageArguments]
    ) -> AsyncGenerator[ImageOutcome]:
        """Rank the model's labels for a stream of images, each given as soon as it is done, in any order.

            async for outcome in client.classify_images(paths):
                print(paths[outcome.index], outcome.error or outcome.result.labels[0].label)

        Arguments and errors are those of `Client.classify_images`; the images may come from an asynchronous iterable too.
        A loop that is left early should be in `contextlib.aclosing`, or the rest is cancelled only when the generator is
        collected.
        """
        options = ImageOptions(
            images=images,
            in_flight=in_flight,
            max_message_bytes=self._settings.max_message_bytes,
            **self._with_call(arguments),
        )
        return stream_images(self._connection.image_classification.ClassifyImageStream, images, options)
