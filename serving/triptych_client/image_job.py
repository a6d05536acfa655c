"""Images that the user wants classified."""

from collections.abc import Sequence
from dataclasses import dataclass

from triptych.v1.image_classification_pb2 import ClassifyImageRequest, ClassifyImageResponse
from triptych_client.codec import ServedFields
from triptych_client.encoder_codec import classified_image_from
from triptych_client.image_results import ClassifiedImage
from triptych_client.job import Job, check_counts


@dataclass(frozen=True, kw_only=True)
class ClassifyImageJob(Job[ClassifyImageRequest, ClassifyImageResponse, ClassifiedImage]):
    """What one call of `classify_image` or `classify_image_many` asks for."""

    images: Sequence[bytes]
    top_k: int | None = None

    def __post_init__(self) -> None:
        check_counts(top_k=self.top_k)

    def sizes(self) -> list[int]:
        return [len(image) for image in self.images]

    def request(self, part: slice) -> ClassifyImageRequest:
        return ClassifyImageRequest(
            images=self.images[part], model=self.model or "", model_version=self.model_version or "", top_k=self.top_k
        )

    def read(self, response: ClassifyImageResponse, served: ServedFields) -> list[ClassifiedImage]:
        return [classified_image_from(result, served) for result in response.results]
