"""Document calls: admission, receiving the document, and the threads that read and write it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

from triptych.v1 import translation_pb2
from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.documents.codec import Config, DocumentEvent, query_from
from triptych_serving.services.documents.job import DocumentJob
from triptych_serving.services.documents.sentence_translator import SentenceTranslator
from triptych_serving.services.translation_calls import TranslationCalls

Request = translation_pb2.TranslateDocumentRequest
Result = TypeVar("Result")

CHUNK_BYTES = 64 * 1024  # of a message
OVERHEAD_BYTES = 64  # of a message beside its chunk
RETRY_SECONDS = 2.0  # documents take seconds to minutes
IDLE_SECONDS = 60.0  # a caller that sends nothing for this long loses its place
HEAVY_THREADS = 2  # Python runs one of them at a time: more would only slow down the engine


class DocumentThreads:
    """Threads for reading and writing documents, which must not block the event loop or other callers' texts.

    They are started when they are first needed. A thread finishes its task even if its caller is gone.

    Args:
        begin: first action of each thread.
    """

    def __init__(self, begin: Callable[[], None] | None = None) -> None:
        self._heavy = ThreadPoolExecutor(HEAVY_THREADS, "triptych-document", begin)
        self._light = ThreadPoolExecutor(1, "triptych-segments", begin)

    def run_heavy(self, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """Call `function(*arguments)` for a whole document, which takes seconds."""
        return asyncio.get_running_loop().run_in_executor(self._heavy, function, *arguments)

    def run_light(self, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """Call `function(*arguments)` for some segments, which takes milliseconds."""
        return asyncio.get_running_loop().run_in_executor(self._light, function, *arguments)

    def close(self) -> None:
        """Drop all tasks that have not started."""
        for pool in (self._heavy, self._light):
            pool.shutdown(wait=False, cancel_futures=True)


class DocumentCalls:
    """Translate documents, a limited number at a time. Not thread-safe: for the event loop only.

    Args:
        calls: translate the sentences.
        limits: number and size of documents.
        threads: read and write documents.
    """

    def __init__(self, calls: TranslationCalls, limits: LimitOptions, threads: DocumentThreads) -> None:
        self._calls, self._limits, self._threads = calls, limits, threads
        self._chunk = max(1, min(CHUNK_BYTES, limits.message_bytes - OVERHEAD_BYTES))
        self.active = 0  # documents in memory, including those that are being received

    async def translate(self, requests: AsyncIterator[Request], context: GrpcContext) -> AsyncGenerator[DocumentEvent]:
        """Yield the detected format, then progress and findings, the translated document in chunks, and a summary.

        Raises:
            ServingError: the document cannot be translated.
        """
        config = await receive_config(requests, self._limits.document_bytes)
        query = query_from(config)
        with self._admit():
            translator = self._calls.find(query.selector)
            with current_call.get().leases.hold(translator):  # the same version for the whole document
                sentences = SentenceTranslator(self._calls, translator, query, context)
                sentences.check()
                job = DocumentJob(query, sentences, self._threads.run_heavy, self._threads.run_light, self._chunk)
                await job.open()
                yield query.format
                content = await receive_document(requests, config, self._limits.document_bytes)
                async with aclosing(job.events(content)) as events:
                    async for event in events:
                        yield event

    @contextmanager
    def _admit(self) -> Iterator[None]:
        limit = self._limits.documents
        if self.active >= limit:
            message = f"{self.active:,} documents are being translated, at most {limit:,} are allowed (--max-documents)"
            raise OverloadedError(message, RETRY_SECONDS)
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1


async def receive_config(requests: AsyncIterator[Request], limit: int) -> Config:
    """Receive the first message of a document call; `limit` in bytes.

    Raises:
        InvalidInputError: not a config, or one that announces a document above the limit.
        DeadlineError: nothing was received for IDLE_SECONDS.
    """
    first = await _next(requests)
    if first is None or first.WhichOneof("part") != "config":
        raise InvalidInputError("config", "missing; it must be the first message")
    if first.config.total_bytes > limit:
        raise _too_large("config.total_bytes", f"{first.config.total_bytes:,}", limit)
    return first.config


async def receive_document(requests: AsyncIterator[Request], config: Config, limit: int) -> bytes:
    """Receive the content that follows the config; `limit` in bytes.

    Raises:
        InvalidInputError: a message has no chunk, or the size is above the limit or not as announced.
        DeadlineError: nothing was received for IDLE_SECONDS.
    """
    content = bytearray()
    while (request := await _next(requests)) is not None:
        if request.WhichOneof("part") != "chunk":
            raise InvalidInputError("chunk", "missing; every message after the first must have one")
        content += request.chunk
        if len(content) > limit:
            raise _too_large("document", f"more than {limit:,}", limit)
    if config.HasField("total_bytes") and len(content) != config.total_bytes:
        problem = f"{config.total_bytes:,} bytes were announced, {len(content):,} were received"
        raise InvalidInputError("config.total_bytes", problem)
    return bytes(content)


def _too_large(field: str, size: str, limit: int) -> InvalidInputError:
    return InvalidInputError(field, f"the document has {size} bytes, at most {limit:,} are accepted (--max-document-bytes)")


async def _next(requests: AsyncIterator[Request]) -> Request | None:
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return await anext(requests, None)
    except TimeoutError as error:
        raise DeadlineError(f"the document is incomplete, and nothing was received for {IDLE_SECONDS:g} s") from error
