"""Limits of queues, clients and messages, and the checks of those that apply to every call."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from triptych_serving.bundle.manifest import IMAGE_CLASSIFICATION, IMAGE_GENERATION, TRANSLATION
from triptych_serving.errors import InvalidInputError, OverloadedError, TooLargeError
from triptych_serving.rpc.call_context import CallContext, GrpcContext, MethodType, is_background
from triptych_serving.rpc.descriptors import ATTENTION_SERVICE, INFERENCE_SERVICE, SERVICE_BY_CAPABILITY
from triptych_serving.rpc.wire import FIELDS, Lists, LongListError, check_lists
from triptych_serving.scheduling.admission import QueueLimits

RETRY_SECONDS = 0.5  # a client knows better than the server when one of its own calls ends
WATCHER_SHARE = 4  # one client may have this part of the streams of health checks and reflection
# gRPC's core accepts messages up to this multiple of the limit, so that they are rejected with an error that names the flag.
CORE_FACTOR = 2
UNCOMPRESSED = 1 << 0  # bit of the algorithm "identity"
MAX_MESSAGE_BYTES = 2**31 - 1  # highest value that gRPC's core accepts
DOCUMENT_ELEMENTS = 10_000  # of each list beside a document: terms, and texts to keep
FEWEST_ELEMENTS = 1_024  # that every list may have, however short the queue is
# Services and methods whose messages carry images, documents or tensors; all others carry texts.
IMAGES = {SERVICE_BY_CAPABILITY[IMAGE_CLASSIFICATION], SERVICE_BY_CAPABILITY[IMAGE_GENERATION]}
BINARY = {*IMAGES, ATTENTION_SERVICE, INFERENCE_SERVICE}
DOCUMENTS = f"{SERVICE_BY_CAPABILITY[TRANSLATION]}/TranslateDocument"

_QUEUE = QueueLimits()


@dataclass(frozen=True)
class LimitOptions:
    """Limits of a server. Requests above a limit are rejected at once, with RESOURCE_EXHAUSTED.

    Raises:
        ValueError: a limit would reject everything.
    """

    # Waiting requests of each model; those that run are not counted. A text has a row for each of its sentences.
    queue_requests: int = _QUEUE.waiting_calls
    queue_rows: int = _QUEUE.waiting_rows
    queue_tokens: int = _QUEUE.waiting_tokens
    queue_seconds: float = math.inf  # reject requests with a longer expected wait
    refuse_late: bool = True  # reject requests that are expected to miss their deadline
    requests_per_client: int = 0  # concurrent calls, a stream counts as one; 0: unlimited
    message_bytes: int = 64 << 20  # of requests and of responses
    documents: int = 8  # translated at a time, with all models together
    document_bytes: int = 64 << 20  # of each document
    document_seconds: float = 3_600.0  # of each document's call, from its first message to its last
    health_watchers: int = 1_000  # streams of health checks and reflection; of one client a quarter
    text_message_bytes: int = 8 << 20  # of requests that carry texts: neither images nor documents
    request_characters: int = 4 << 20  # of all texts of a request: four for each token that may wait
    decode_tokens: int = 4 << 20  # of one request: rows x beams or samples x max_length

    def __post_init__(self) -> None:
        unlimited = ("refuse_late", "requests_per_client")
        for name, value in vars(self).items():
            if name not in unlimited and not value > 0:
                raise ValueError(f"{name} is {value}, must be above 0")
        if self.requests_per_client < 0:
            raise ValueError(f"requests_per_client is {self.requests_per_client}, must be at least 0")

    @property
    def queue(self) -> QueueLimits:
        """Limits of the queue of one model."""
        return QueueLimits(
            waiting_rows=self.queue_rows,
            waiting_tokens=self.queue_tokens,
            waiting_calls=self.queue_requests,
            waiting_seconds=self.queue_seconds,
            refuses_late=self.refuse_late,
            request_characters=self.request_characters,
            decode_tokens=self.decode_tokens,
            result_bytes=self.message_bytes,
        )

    @property
    def messages(self) -> "MessageLimit":
        """Limits of messages."""
        return MessageLimit(self.message_bytes, self.text_message_bytes, max(FEWEST_ELEMENTS, self.queue_rows))


@dataclass(frozen=True)
class MessageLimit:
    """Reject messages above a size. gRPC's core would reject them too, but would name neither the flag nor a remedy."""

    limit: int = MAX_MESSAGE_BYTES  # bytes, of requests and of responses
    text_limit: int = MAX_MESSAGE_BYTES  # bytes, of requests that carry texts
    elements: int = MAX_MESSAGE_BYTES  # of each list of a request

    @property
    def channel_options(self) -> list[tuple[str, int]]:
        """Options of gRPC's core. Responses are not limited there, as they have been checked here."""
        return [
            ("grpc.max_receive_message_length", min(MAX_MESSAGE_BYTES, CORE_FACTOR * self.limit)),
            ("grpc.max_send_message_length", -1),
            # gRPC's core would unpack a compressed message, to a thousand times its size, before it looks at this limit.
            ("grpc.compression_enabled_algorithms_bitset", UNCOMPRESSED),
        ]

    def check_request(self, size: int, has_texts: bool = False) -> None:
        """Reject an oversized request; `size` in bytes. Raises TooLargeError: above the limit."""
        limit, flag = self.limit, "--max-message-bytes"
        if has_texts and self.text_limit < limit:
            limit, flag = self.text_limit, "--max-text-message-bytes"
        if size > limit:
            raise TooLargeError(
                f"request has {size:,} bytes, at most {limit:,} are accepted ({flag}): "
                "send fewer texts or images per request, or raise the server's message size limit"
            )

    def check_elements(self, message: bytes, lists: Lists, most: int | None = None) -> None:
        """Reject a request with a very long list before it is parsed, which would take much more memory than the message.

        Args:
            most: elements of each list; None: as many as can wait.

        Raises:
            InvalidInputError: a list is above the limit; names it.
        """
        rule, most = ("can wait (--max-queue-rows)", self.elements) if most is None else ("are allowed", most)
        try:
            check_lists(message, lists, most)
        except LongListError as error:
            problem = f"at least {most + 1:,} elements in one request, at most {most:,} {rule}; send fewer"
            if not error.args:
                problem = f"more than {FIELDS * most:,} fields in one message; send each once"
            raise InvalidInputError(str(error) or "request", problem) from None

    def check_response(self, size: int) -> None:
        """Reject an oversized response; `size` in bytes. Raises TooLargeError: above the limit."""
        if size > self.limit:
            raise TooLargeError(
                f"response would have {size:,} bytes, at most {self.limit:,} are sent (--max-message-bytes): "
                "ask for less per request, or raise the server's message size limit"
            )


class ClientLimit:
    """Guard that limits the concurrent calls of each client. Not thread-safe: for the event loop only.

    A client is the name of an API key or certificate, or else an address. A stream counts as one call.

    Args:
        limit: concurrent calls; 0: unlimited.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: Counter[str] = Counter()

    def concerns(self, service: str, method: str, method_type: MethodType) -> bool:
        return self._limit > 0 and not is_background(f"{service}/{method}")

    def admit(self, call: CallContext, context: GrpcContext) -> AbstractContextManager[None]:
        """Count a call of its client until it ends. Raises OverloadedError: there are too many calls."""
        client = client_of(call)
        self._check(client)
        return _counted(self._running, client)

    def _check(self, client: str) -> None:
        if (running := self._running[client]) >= self._limit:
            problem = f"client {client} has {running:,} calls in progress, at most {self._limit:,} are allowed"
            raise OverloadedError(f"{problem} (--max-requests-per-client)", RETRY_SECONDS)


class WatcherLimit(ClientLimit):
    """Guard that limits the open streams of health checks and reflection, which need no key and no other limit holds.

    Args:
        limit: open streams; one client may have a quarter of them.
    """

    def concerns(self, service: str, method: str, method_type: MethodType) -> bool:
        return is_background(f"{service}/{method}") and method_type != "unary"

    def _check(self, client: str) -> None:
        own = max(1, self._limit // WATCHER_SHARE)
        for who, running, most in (("the server", self._running.total(), self._limit), (client, self._running[client], own)):
            if running >= most:
                problem = f"{who} has {running:,} open streams of health checks and reflection, at most {most:,} are allowed"
                raise OverloadedError(f"{problem} (--max-health-watchers)", RETRY_SECONDS)


@contextmanager
def _counted(running: "Counter[str]", client: str) -> Iterator[None]:
    running[client] += 1
    try:
        yield
    finally:
        running[client] -= 1
        if not running[client]:
            del running[client]


def client_of(call: CallContext) -> str:
    """Return the principal, or else the peer without its port: `ipv6:%5B::1%5D:567` -> `[::1]`, a local socket -> `unix`."""
    if call.principal:
        return call.principal
    scheme, _, address = unquote(call.peer).partition(":")
    return address.rpartition(":")[0] if scheme in ("ipv4", "ipv6") else scheme
