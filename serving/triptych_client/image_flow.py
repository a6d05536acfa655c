"""Which images of a ClassifyImageStream call are under way, and what its messages say; how they travel is told elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass

from triptych.v1.image_classification_pb2 import ClassifyImageStreamRequest, ClassifyImageStreamResponse
from triptych_client.call import Call
from triptych_client.codec import served_from
from triptych_client.encoder_codec import classified_image_from
from triptych_client.errors import DeadlineExceededError, ResourceExhaustedError, ServerError, TriptychClientError
from triptych_client.image_results import ImageOutcome
from triptych_client.image_source import check_sources
from triptych_client.job import check_counts
from triptych_client.status import error_of_status


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """What one call of `classify_images` asks for."""

    call: Call
    images: object
    in_flight: int
    max_message_bytes: int
    model: str | None = None
    model_version: str | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        check_sources(self.images, "classify_images")
        check_counts(top_k=self.top_k)
        if self.in_flight < 1:
            raise ValueError(f"in_flight is {self.in_flight}, must be 1 or more")


@dataclass(frozen=True, slots=True)
class Resend:
    """The server asked to be sent this image again, a little later."""

    request: ClassifyImageStreamRequest
    pause_seconds: float


class ImageFlow:
    """The images that were sent and are not answered yet are kept: when a connection breaks, the next one has them again."""

    def __init__(self, options: ImageOptions) -> None:
        self.call = options.call
        self.pending: dict[int, ClassifyImageStreamRequest] = {}
        self._options = options
        self._attempts = options.call.attempts()
        self._moved = False
        self._taken = 0

    @property
    def has_room(self) -> bool:
        """Whether one more image may be under way."""
        return len(self.pending) < self._options.in_flight

    def start(self) -> list[ClassifyImageStreamRequest]:
        """What a new connection is sent first."""
        self._moved = False
        return list(self.pending.values())

    def add(self, read: Callable[[], bytes]) -> ClassifyImageStreamRequest | ImageOutcome:
        """The next image: what to send, or why it cannot be."""
        index, self._taken = self._taken, self._taken + 1
        try:
            request = self._request(index, read())
        except (OSError, TypeError, ResourceExhaustedError) as error:
            return ImageOutcome(index, error=error)
        self.pending[index] = request
        self._moved = True
        return request

    def take(self, message: ClassifyImageStreamResponse) -> ImageOutcome | Resend:
        """What a message says of its image. Raises ServerError: nothing, or of an image that was not asked for."""
        index = message.image_id
        request = self.pending.get(index)
        if request is None or message.WhichOneof("outcome") is None:
            raise self.broken(f"the server sent no answer to a question of this stream, for image {index}")
        if message.HasField("error"):
            return self._refused(request, error_of_status(message.error, self.call.request_id))
        del self.pending[index]
        self._moved = True
        return ImageOutcome(index, classified_image_from(message.result, served_from(message, self.call.request_id)))

    def pause_after(self, error: TriptychClientError) -> float:
        """Seconds to wait before the images under way are sent once more.

        Raises:
            TriptychClientError: They cannot be, or nothing has moved since they were sent the last time.
        """
        if self._moved:
            # A connection lives no longer than a call's deadline, a stream as long as it gets on.
            self._moved, self._attempts = False, self.call.attempts()
            if isinstance(error, DeadlineExceededError):
                return 0.0
        return self._attempts.pause_after(error)

    def broken(self, message: str) -> ServerError:
        """The server does not keep the contract."""
        return ServerError(message, code="INTERNAL", request_id=self.call.request_id)

    def _request(self, index: int, image: bytes) -> ClassifyImageStreamRequest:
        options = self._options
        request = ClassifyImageStreamRequest(
            image_id=index,
            image=image,
            model=options.model or "",
            model_version=options.model_version or "",
            top_k=options.top_k,
        )
        # gRPC would end the whole stream for it.
        if (size := request.ByteSize()) > options.max_message_bytes:
            message = (
                f"the image's message has {size:,} bytes, `max_message_bytes` of the client is {options.max_message_bytes:,}"
            )
            raise ResourceExhaustedError(message, code="RESOURCE_EXHAUSTED", request_id=self.call.request_id)
        return request

    def _refused(self, request: ClassifyImageStreamRequest, error: TriptychClientError) -> ImageOutcome | Resend:
        try:
            return Resend(request, self._attempts.pause_after(error))
        except TriptychClientError:
            del self.pending[request.image_id]
            self._moved = True
            return ImageOutcome(request.image_id, error=error)
