"""How large messages may be: gRPC's core would refuse them too, but says neither the flag nor what to do."""

from triptych_serving.errors import TooLargeError
from triptych_serving.rpc.dispatch import MessageSizes

# gRPC's core takes messages up to this multiple of the limit, so that they can be refused in plain words.
CORE_FACTOR = 2
CORE_BYTES = 2**31 - 1  # that it can be set to


class MessageLimit(MessageSizes):
    """One limit for both directions.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit

    @property
    def channel_options(self) -> list[tuple[str, int]]:
        """gRPC's own settings. Nothing stops what is sent, since it has been checked."""
        return [
            ("grpc.max_receive_message_length", min(CORE_BYTES, CORE_FACTOR * self._limit)),
            ("grpc.max_send_message_length", -1),
        ]

    def check_request(self, size: int) -> None:
        """Of so many bytes.

        Raises:
            TooLargeError: above the limit.
        """
        if size > self._limit:
            raise TooLargeError(
                f"the request has {size:,} bytes, this server takes at most {self._limit:,} (--max-message-bytes): "
                "send fewer texts or images in one request, or raise the server's message size limit"
            )

    def check_response(self, size: int) -> None:
        """Of so many bytes.

        Raises:
            TooLargeError: above the limit.
        """
        if size > self._limit:
            raise TooLargeError(
                f"the response would have {size:,} bytes, this server sends at most {self._limit:,} (--max-message-bytes): "
                "ask for less in one request, or raise the server's message size limit"
            )
