"""Translations that arrive piece by piece, blocking and for asyncio."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from triptych.v1 import translation_pb2
from triptych_client.call import Attempts, Call
from triptych_client.errors import ServerError
from triptych_client.messages import served_from, translation_from
from triptych_client.results import Translation
from triptych_client.status import error_of
from triptych_client.tasks import TRANSLATE_STREAM


class StreamReader:
    """The state of one TranslateStream call with a single text."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._started = False
        self._text = ""
        self._result: translation_pb2.Translation | None = None
        self._translation: Translation | None = None

    def read(self, message: translation_pb2.TranslateStreamResponse) -> str:
        """Return the text that a message adds, often none. Raises ServerError if it contradicts the previous messages."""
        self._started = True
        match message.WhichOneof("event"):
            case "piece":
                return self._add(message.piece.text)
            case "result":
                self._result = message.result.translation
                return self._add(self._rest(self._result.translated_text))
            case "summary" if self._result is not None:
                self._translation = translation_from(self._result, served_from(message.summary, self.request_id))
        return ""

    def finish(self) -> None:
        """End the stream. Raises ServerError if the translation is missing."""
        if self._translation is None:
            raise self._broken("the stream ended before its translation")

    def pause_after(self, failure: grpc.RpcError, attempts: Attempts) -> float:
        """Return the seconds to wait before the request is sent again.

        Raises:
            TriptychClientError: No retry is possible, or one would repeat pieces that were already read.
        """
        error = error_of(failure, self.request_id)
        if self._started:
            raise error
        return attempts.pause_after(error)

    @property
    def translation(self) -> Translation:
        """The whole translation. Raises RuntimeError before the end of the stream."""
        if self._translation is None:
            raise RuntimeError("the stream is not at its end: iterate over its pieces first")
        return self._translation

    def _add(self, text: str) -> str:
        self._text += text
        return text

    def _rest(self, whole: str) -> str:
        # The pieces are a prefix of the translation; callers that print them need the rest, too.
        if not whole.startswith(self._text):
            raise self._broken("the pieces of the stream are not the beginning of its translation")
        return whole.removeprefix(self._text)

    def _broken(self, message: str) -> ServerError:
        return ServerError(message, code="INTERNAL", request_id=self.request_id)


class _Stream:
    """The members that the blocking and the asyncio stream share."""

    def __init__(self, channel: Any, request: translation_pb2.TranslateStreamRequest, call: Call) -> None:
        self._reader = StreamReader(call.request_id)
        self._request, self._call = request, call
        self._method = channel.unary_stream(TRANSLATE_STREAM.path, **TRANSLATE_STREAM.codec)

    @property
    def request_id(self) -> str:
        """Value of the `x-request-id` that the request sends."""
        return self._reader.request_id

    @property
    def translation(self) -> Translation:
        """The whole translation. Raises RuntimeError before the end of the stream."""
        return self._reader.translation

    def _start(self, attempts: Attempts) -> Any:
        return self._method(self._request, timeout=attempts.remaining_seconds(), metadata=self._call.metadata)


class TranslationStream(_Stream, Iterator[str]):
    """An iterator over the pieces of a translated text; at its end, `translation` has the result.

    The request is sent when the first piece is read. Leaving the `with` block, `close()`, or dropping the stream before its end
    cancels the request, and the server stops decoding.
    """

    def __init__(self, channel: grpc.Channel, request: translation_pb2.TranslateStreamRequest, call: Call) -> None:
        super().__init__(channel, request, call)
        self._pieces = self._read()

    def __next__(self) -> str:
        """Return the next piece. Raises TriptychClientError if the request failed; it is not retried after the first piece."""
        return next(self._pieces)

    def close(self) -> None:
        """Cancel the request if it is still running."""
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _read(self) -> Generator[str]:
        attempts = self._call.attempts()
        while True:
            call = self._start(attempts)
            try:
                for message in call:
                    if piece := self._reader.read(message):
                        yield piece
                self._reader.finish()
                return
            except grpc.RpcError as failure:
                pause = self._reader.pause_after(failure, attempts)
            finally:
                call.cancel()
            time.sleep(pause)


class AsyncTranslationStream(_Stream, AsyncIterator[str]):
    """TranslationStream for asyncio: `async for`, `async with`, `await stream.close()`."""

    def __init__(self, channel: grpc.aio.Channel, request: translation_pb2.TranslateStreamRequest, call: Call) -> None:
        super().__init__(channel, request, call)
        self._pieces = self._read()

    async def __anext__(self) -> str:
        """Return the next piece. Raises TriptychClientError if the request failed; it is not retried after the first piece."""
        return await anext(self._pieces)

    async def close(self) -> None:
        """Cancel the request if it is still running."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self) -> AsyncGenerator[str]:
        attempts = self._call.attempts()
        while True:
            call = self._start(attempts)
            try:
                async for message in call:
                    if piece := self._reader.read(message):
                        yield piece
                self._reader.finish()
                return
            except grpc.RpcError as failure:
                pause = self._reader.pause_after(failure, attempts)
            finally:
                call.cancel()
            await asyncio.sleep(pause)
