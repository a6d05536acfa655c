"""A translation whose text arrives while it is decoded, for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Self, TypeAlias

import grpc

from triptych.v1.translation_pb2 import TranslateStreamRequest, TranslateStreamResponse
from triptych_client.reader import StreamReader
from triptych_client.results import Translation
from triptych_client.translate_job import TranslateJob

# A string: grpc's classes are generic for type checkers only.
AsyncStreamMethod: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[TranslateStreamRequest, TranslateStreamResponse]"


class AsyncTranslationStream(AsyncIterator[str]):
    """TranslationStream for asyncio: `async for`, `async with`, `await stream.close()`."""

    def __init__(self, method: AsyncStreamMethod, job: TranslateJob) -> None:
        self._reader = StreamReader(job.call.request_id)
        self._pieces = self._read(method, job)

    @property
    def request_id(self) -> str:
        """What the request sends as `x-request-id`."""
        return self._reader.request_id

    @property
    def translation(self) -> Translation:
        """The whole translation. Raises RuntimeError while the stream is not at its end."""
        return self._reader.translation

    async def __anext__(self) -> str:
        """The next piece. Raises TriptychClientError: the request failed; it is not retried once anything has come."""
        return await anext(self._pieces)

    async def close(self) -> None:
        """Cancel the request if it is still under way."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self, method: AsyncStreamMethod, job: TranslateJob) -> AsyncGenerator[str]:
        request, attempts = job.stream_request(), job.call.attempts()
        while True:
            call = method(request, timeout=attempts.remaining_seconds(), metadata=job.call.metadata)
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
