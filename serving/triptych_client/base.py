"""The common part of both clients: settings, and the preparation of calls."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

import grpc

from triptych_client.arguments import (
    CallArguments,
    ClassifyImageArguments,
    DocumentArguments,
    TranslateArguments,
    check_names,
    collect_options,
)
from triptych_client.call import Call
from triptych_client.connection import (
    DEFAULT_MESSAGE_BYTES,
    Settings,
    check_retries,
    check_timeout,
    default_api_key,
    named_address,
)
from triptych_client.documents import DocumentExchange, OnProgress
from triptych_client.files import DocumentSource, DocumentTarget, check_images, check_target, read_file, read_image
from triptych_client.generation import GENERATE, GENERATE_STREAM, Prompt, request_for
from triptych_client.images import ImageExchange
from triptych_client.messages import fill
from triptych_client.tasks import TRANSLATE_STREAM, RequestBatch, SimpleCall, UnaryTask
from triptych_client.text_tasks import RERANK

Result = TypeVar("Result")

HEALTH_TIMEOUT_SECONDS = 5.0


class BaseClient:
    """The settings of a client, and the requests made with them."""

    _running: WeakSet[Any] | None = None
    """Calls that the channel does not cancel when it is closed."""

    def __init__(  # noqa: PLR0913 - a public constructor with named arguments
        self,
        address: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        allow_plaintext_keys: bool = False,
        timeout_seconds: float = 60.0,
        retries: int | None = None,
        concurrency: int = 4,
        texts_per_call: int = 64,
        max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
    ) -> None:
        """Make a client. It connects at the first call.

        Args:
            address: Host and port of the server, such as "localhost:8001"; the port is 8001 by default, and https:// selects
                TLS. Without an address, the environment variable TRIPTYCH_SERVER, else localhost:8001.
            credentials: For TLS, as from `tls_credentials()`; without them and https://, the connection is not encrypted.
            api_key: Sent with every request; by default the environment variable TRIPTYCH_API_KEY. "" sends none.
            allow_plaintext_keys: Send the key without TLS to other machines, too. Anyone on the network can read it.
            timeout_seconds: Default deadline of a request, retries included.
            retries: How often a request is sent again while the server is unavailable or its queue is full: as often as the
                deadline allows by default, 0 is never.
            concurrency: Maximum number of concurrent requests of one call such as `translate_many`.
            texts_per_call: Maximum number of texts or images per request; longer lists are sent as several requests.
            max_message_bytes: Largest message to send or receive. The server has its own limit.

        Raises:
            ValueError: A number is out of range, the address is malformed, or the API key would leave this machine without TLS.
        """
        self._settings = Settings(
            *named_address(address),
            credentials=credentials,
            api_key=default_api_key() if api_key is None else api_key,
            allow_plaintext_keys=allow_plaintext_keys,
            timeout_seconds=timeout_seconds,
            retries=retries,
            concurrency=concurrency,
            texts_per_call=texts_per_call,
            max_message_bytes=max_message_bytes,
        )
        self._open()

    def _open(self) -> None:
        """Make the channel, if it can be made now."""

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._settings.address

    def _call(self, *, timeout_seconds: float | None = None, request_id: str | None = None, retries: int | None = None) -> Call:
        settings = self._settings
        seconds = check_timeout(settings.timeout_seconds if timeout_seconds is None else timeout_seconds)
        # A header cannot carry others.
        if request_id and not (isinstance(request_id, str) and request_id.isascii() and request_id.isprintable()):
            raise ValueError(f"request_id is {request_id!r:.40}, must be printable ASCII characters")
        check_retries(retries)
        most = settings.retries if retries is None else retries
        key, hint = settings.api_key, settings.hint
        return Call(request_id or uuid.uuid4().hex, seconds, most, api_key=key, hint=hint, running=self._running)

    def _split_off_call(self, arguments: Mapping[str, Any], known: Any) -> tuple[Call, dict[str, Any]]:
        """Separate the arguments of the call from those of the request, which the TypedDict `known` describes."""
        arguments = {
            name: value for name, value in arguments.items() if value is not None or name not in known.__optional_keys__
        }
        others = collect_options(arguments) if "options" in known.__optional_keys__ else arguments
        call = {name: others.pop(name) for name in CallArguments.__optional_keys__ if name in others}
        return self._call(**call), others

    def _simple_request(
        self, method: SimpleCall[Any, Any, Any], fields: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> tuple[Any, Call]:
        """Make the request of these fields and the named arguments; images are read."""
        check_names(method.name, arguments, method.arguments)
        call, values = self._split_off_call({**fields, **arguments}, method.arguments)
        if "image" in values:
            values["image"] = read_image(values["image"])
        if "images" in values:
            values["images"] = [read_image(image) for image in values["images"]]
        if "latents" in values:
            values["latents"] = [{"values": map(float, latents)} for latents in values["latents"]]
        return fill(method.request, values), call

    def _batch(
        self, task: UnaryTask[Result], inputs: Sequence[Any], arguments: Mapping[str, Any], fail_fast: bool
    ) -> RequestBatch[Result]:
        call, others = self._split_off_call(arguments, task.arguments)
        settings = self._settings
        return task.batch(inputs, others, call, settings.texts_per_call, settings.max_message_bytes, fail_fast)

    def _stream_request(self, text: str, arguments: Mapping[str, Any]) -> tuple[Any, Call]:
        call, others = self._split_off_call(arguments, TranslateArguments)
        return TRANSLATE_STREAM.request_with([text], others), call

    def _generate_request(self, prompt: Prompt, arguments: Mapping[str, Any], streams: bool) -> tuple[Any, Call]:
        task = GENERATE_STREAM if streams else GENERATE
        call, others = self._split_off_call(arguments, task.arguments)
        return request_for(task, prompt, others), call

    def _rerank_request(self, query: str, documents: Sequence[str], arguments: Mapping[str, Any]) -> tuple[Any, Call]:
        call, others = self._split_off_call(arguments, RERANK.arguments)
        request = RERANK.request_with(documents, others)
        if not isinstance(query, str):
            raise TypeError(f"rerank takes one query, a text, and documents; the query is of type {type(query).__name__}")
        request.MergeFrom(fill(RERANK.request, {"query": query}))
        return request, call

    def _document(
        self, source: DocumentSource, target: DocumentTarget | None, progress: OnProgress | None, arguments: Mapping[str, Any]
    ) -> DocumentExchange:
        check_target(target)
        call, others = self._split_off_call(arguments, DocumentArguments)
        content, name = read_file(source, "a document")
        name = name.encode(errors="replace").decode()  # of files that other systems have named
        return DocumentExchange(content, {"file_name": name, **others}, call, self._settings.max_message_bytes, progress)

    def _image_exchange(self, images: object, in_flight: int, arguments: Mapping[str, Any]) -> ImageExchange:
        check_images(images, "classify_images")
        call, others = self._split_off_call(arguments, ClassifyImageArguments)
        return ImageExchange(others, call, in_flight, self._settings.max_message_bytes)


def health_call(timeout_seconds: float) -> Call:
    """Make a call without retries and API key: an unavailable server is a result."""
    return Call(uuid.uuid4().hex, check_timeout(timeout_seconds), retries=0)
