"""What both clients share: how they are made, and how their calls are prepared."""

import uuid
from collections.abc import Mapping
from typing import Any

import grpc

from triptych_client.arguments import CallArguments
from triptych_client.call import Call
from triptych_client.credentials import default_api_key
from triptych_client.document_job import DocumentJob
from triptych_client.document_source import DocumentSource, read_document
from triptych_client.job import Job, Request, Response, Result
from triptych_client.settings import DEFAULT_MESSAGE_BYTES, Settings, check_timeout, default_address


class BaseClient:
    """The settings of a client, and what they make of a call's arguments."""

    def __init__(  # noqa: PLR0913 - every one is named where a client is made
        self,
        address: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        allow_plaintext_keys: bool = False,
        timeout_seconds: float = 60.0,
        retries: int = 5,
        concurrency: int = 4,
        texts_per_call: int = 64,
        max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
    ) -> None:
        """Connects at the first call, not now.

        Args:
            address: Host and port of the server; by default the environment variable TRIPTYCH_SERVER, else localhost:8001.
            credentials: For TLS, as from `tls_credentials()` of this package; without, the connection is not encrypted.
            api_key: Sent with every request; by default the environment variable TRIPTYCH_API_KEY, and "" is none.
            allow_plaintext_keys: Send the key without TLS to other machines too; whoever is on the way can read it.
            timeout_seconds: How long a request may take, its retries included, where the call does not say.
            retries: How often a request is sent again while the server is unavailable or its queue is full; 0 is never.
            concurrency: How many requests of one call such as `translate_many` are under way at once.
            texts_per_call: How many texts or images a request has at most; longer lists are sent as several requests.
            max_message_bytes: The largest message to send or receive. The server has a limit of its own.

        Raises:
            ValueError: A number is out of range, or the API key would leave this machine without TLS.
        """
        self._settings = Settings(
            address=address or default_address(),
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
        """Where a client may make its channel."""

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._settings.address

    def _call(self, *, timeout_seconds: float | None = None, request_id: str | None = None) -> Call:
        seconds = self._settings.timeout_seconds if timeout_seconds is None else timeout_seconds
        check_timeout(seconds)
        return Call(request_id or uuid.uuid4().hex, seconds, self._settings.retries, api_key=self._settings.api_key)

    def _requests(self, job: Job[Request, Response, Result]) -> list[tuple[Request, Call]]:
        return job.requests(self._settings.texts_per_call, self._settings.max_message_bytes)

    def _document_job(self, source: DocumentSource, arguments: Mapping[str, Any]) -> DocumentJob:
        content, name = read_document(source)
        named = {"file_name": name, **self._with_call(arguments)}
        return DocumentJob(content=content, max_message_bytes=self._settings.max_message_bytes, **named)

    def _with_call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a job: those of the call as one `call`, and the others as they are."""
        others = dict(arguments)
        known = {name: others.pop(name) for name in CallArguments.__annotations__ if name in others}
        return {"call": self._call(**known), **others}
