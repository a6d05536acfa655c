"""A document on its way in."""

import asyncio
from collections.abc import AsyncIterator

from triptych.v1 import translation_pb2
from triptych_serving.errors import DeadlineError, InvalidInputError
from triptych_serving.services.documents.codec import Request

IDLE_SECONDS = 60.0  # a caller who sends nothing for so long does not keep his place


class Intake:
    """What one caller sends: a config, then the document.

    Args:
        requests: his messages.
        limit: bytes of the document.
    """

    def __init__(self, requests: AsyncIterator[Request], limit: int) -> None:
        self._requests = requests
        self._limit = limit
        self._config: translation_pb2.DocumentConfig | None = None

    async def config(self) -> translation_pb2.DocumentConfig:
        """The first message.

        Raises:
            InvalidInputError: it is something else, or says that the document is too large.
        """
        first = await self._next()
        if first is None or first.WhichOneof("part") != "config":
            raise InvalidInputError("config", "it must be the first message, and is missing")
        if first.config.total_bytes > self._limit:
            raise self._too_large("config.total_bytes", f"{first.config.total_bytes:,}")
        self._config = first.config
        return first.config

    async def document(self) -> bytes:
        """All that follows.

        Raises:
            InvalidInputError: it is no document, too large, or not of the size that the config says.
            DeadlineError: nothing more has come for a long time.
        """
        content = bytearray()
        while (request := await self._next()) is not None:
            if request.WhichOneof("part") != "chunk":
                raise InvalidInputError("chunk", "every message behind the first one must have it")
            content += request.chunk
            if len(content) > self._limit:
                raise self._too_large("document", f"more than {self._limit:,}")
        self._check_whole(len(content))
        return bytes(content)

    def _check_whole(self, size: int) -> None:
        assert self._config is not None, "the config comes first"
        if self._config.HasField("total_bytes") and size != self._config.total_bytes:
            problem = f"{self._config.total_bytes:,} bytes were announced, {size:,} have come"
            raise InvalidInputError("config.total_bytes", problem)

    def _too_large(self, field: str, size: str) -> InvalidInputError:
        problem = f"the document has {size} bytes, this server takes at most {self._limit:,} (--max-document-bytes)"
        return InvalidInputError(field, problem)

    async def _next(self) -> Request | None:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                return await anext(self._requests, None)
        except TimeoutError as error:
            raise DeadlineError(f"the document is not complete, and nothing more came for {IDLE_SECONDS:g} s") from error
