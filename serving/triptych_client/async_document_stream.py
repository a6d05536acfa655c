"""A document to the server, and its translation back, for asyncio."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc

from triptych.v1.translation_pb2 import TranslateDocumentRequest, TranslateDocumentResponse
from triptych_client.async_image_stream import CUT_OFF
from triptych_client.document_flow import DocumentFlow
from triptych_client.document_results import TranslatedDocument
from triptych_client.errors import ServerError, TriptychClientError, UnavailableError
from triptych_client.status import error_of

# A string: grpc's classes are generic for type checkers only.
AsyncDocumentMethod: TypeAlias = "grpc.aio.StreamStreamMultiCallable[TranslateDocumentRequest, TranslateDocumentResponse]"


async def send_document(method: AsyncDocumentMethod, flow: DocumentFlow) -> TranslatedDocument:
    """Send it, and wait for the translation; cancelling the task cancels the call.

    Raises:
        TriptychClientError: It failed, retries included.
    """
    while True:
        try:
            return await _Line(flow).run(method)
        except grpc.RpcError as failure:
            pause = flow.pause_after(_error_of(failure, flow.job.call.request_id))
        await asyncio.sleep(pause)


class _Line:
    """One call."""

    def __init__(self, flow: DocumentFlow) -> None:
        self._flow = flow
        self._seconds = flow.job.call.timeout_seconds
        self._wanted = asyncio.Event()  # the document, or nothing any more
        self._limit = asyncio.timeout(self._seconds)

    async def run(self, method: AsyncDocumentMethod) -> TranslatedDocument:
        self._flow.connect()
        call = method(self._requests(), metadata=self._flow.job.call.metadata)
        try:
            async with self._limit:
                async for message in call:
                    self._touch()
                    self._flow.take(message)
                    if self._flow.accepted:
                        self._wanted.set()
            return self._flow.result()
        except TimeoutError:
            if self._limit.expired():
                raise self._flow.stood_still() from None
            raise
        finally:
            call.cancel()
            self._wanted.set()

    async def _requests(self) -> AsyncIterator[TranslateDocumentRequest]:
        yield self._flow.job.config()
        await self._wanted.wait()
        if self._flow.accepted:
            for chunk in self._flow.job.chunks():
                self._touch()
                yield chunk

    def _touch(self) -> None:
        """Something has happened."""
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)


def _error_of(failure: grpc.RpcError, request_id: str) -> TriptychClientError:
    error = error_of(failure, request_id)
    # Where the server ends a call while something is being sent, grpc.aio loses the server's own status.
    if isinstance(error, ServerError) and error.message == CUT_OFF:
        return UnavailableError("the call ended while sending the document", code="UNAVAILABLE", request_id=request_id)
    return error
