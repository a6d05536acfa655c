"""What calls of the image service return. All of it is immutable."""

from dataclasses import dataclass

from triptych_client.results import Served
from triptych_client.text_results import ScoredLabel


@dataclass(frozen=True, slots=True)
class ClassifiedImage(Served):
    """The labels of one image."""

    labels: tuple[ScoredLabel, ...]
    """Best first."""
    width: int
    """Pixels of the image as it was sent, turned upright."""
    height: int


@dataclass(frozen=True, slots=True)
class ImageOutcome:
    """What became of one image of a stream: either `result` or `error`."""

    index: int
    """Which of the images, from 0."""
    result: ClassifiedImage | None = None
    error: Exception | None = None
    """TriptychClientError: the server refused the image. OSError: the file could not be read. TypeError: it is no kind of
    image source."""

    def get(self) -> ClassifiedImage:
        """The result. Raises `error` where there is none."""
        if self.result is None:
            raise self.error or RuntimeError(f"image {self.index} has neither result nor error")
        return self.result
