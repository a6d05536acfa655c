"""The calls to the image service."""

from collections.abc import Generator, Iterable, Sequence
from typing import Unpack

from triptych_client.arguments import ClassifyImageArguments
from triptych_client.asking import Asking
from triptych_client.image_flow import ImageOptions
from triptych_client.image_job import ClassifyImageJob
from triptych_client.image_results import ClassifiedImage, ImageOutcome
from triptych_client.image_source import ImageSource, read_images
from triptych_client.image_stream import stream_images
from triptych_client.results import Results


class ImageCalls(Asking):
    """What Client can do with models of the ViT family."""

    def classify_image(self, image: ImageSource, **arguments: Unpack[ClassifyImageArguments]) -> ClassifiedImage:
        """Rank the model's labels for an image.

            print(client.classify_image("cat.jpg").labels[0].label)

        Args:
            image: A JPEG, PNG or WebP file: its bytes, its path, or the file itself, opened in binary mode.
            arguments: `top_k`, `model`, `model_version`, `timeout_seconds`, `request_id`; all optional, explained in
                `triptych_client.arguments`.

        Raises:
            OSError: The file cannot be read.
            InvalidArgumentError: It is no image that the server takes, or an option is out of range.
            NotFoundError: No such model or version.
            FailedPreconditionError: The model does not classify images.
            TriptychClientError: Base of these, and of all other failures but the first.
        """
        return self.classify_image_many([image], **arguments)[0]

    def classify_image_many(
        self, images: Sequence[ImageSource], **arguments: Unpack[ClassifyImageArguments]
    ) -> Results[ClassifiedImage]:
        """Rank the model's labels for many images; the result has their order.

        All of them are read first; `classify_images` holds few at a time. Long lists are sent as several requests, as by
        `translate_many`. One bad image fails the call.

        Raises:
            OSError, TriptychClientError: As for `classify_image`.
        """
        job = ClassifyImageJob(images=read_images(images), **self._with_call(arguments))
        return self._ask(self._connection.image_classification.ClassifyImage, job)

    def classify_images(
        self, images: Iterable[ImageSource], *, in_flight: int = 16, **arguments: Unpack[ClassifyImageArguments]
    ) -> Generator[ImageOutcome]:
        """Rank the model's labels for a stream of images, each given as soon as it is done, in any order.

            for outcome in client.classify_images(paths):
                print(paths[outcome.index], outcome.error or outcome.result.labels[0].label)

        A bad image has an outcome with an error; the others go on. A broken connection is made anew, and what was under way
        is sent again. Closing the generator, or dropping it, cancels what is under way.

        Args:
            images: Taken one by one, in the thread that asks for outcomes, as far as `in_flight` allows.
            in_flight: How many images are under way at once. 1 answers each before the next is taken.
            arguments: As for `classify_image`. `timeout_seconds` is how long the stream may stand still: it may last as long
                as images are taken and answered.

        Raises:
            ValueError, TypeError: An argument is wrong; at once. All else while the outcomes are iterated over.
            TriptychClientError: The stream as a whole failed.
        """
        options = ImageOptions(
            images=images,
            in_flight=in_flight,
            max_message_bytes=self._settings.max_message_bytes,
            **self._with_call(arguments),
        )
        return stream_images(self._connection.image_classification.ClassifyImageStream, images, options)
