"""Document calls: admission and receiving the document."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from time import monotonic

import grpc

from triptych.v1 import translation_pb2
from triptych_serving.errors import DeadlineError, InvalidInputError, OverloadedError
from triptych_serving.models.request_cost import check_characters
from triptych_serving.rpc.call_context import GrpcContext, current_call
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.documents.codec import Config, Response, finding_to, query_from, texts_query_from
from triptych_serving.services.documents.job import DocumentJob
from triptych_serving.services.documents.sentence_translator import SentenceTranslator
from triptych_serving.services.documents.work import Findings
from triptych_serving.services.documents.workers import DocumentWorkers
from triptych_serving.services.translation_calls import TranslationCalls
from triptych_serving.services.v1.codec import served_by

Request = translation_pb2.TranslateDocumentRequest

CHUNK_BYTES = 64 * 1024  # of a message
OVERHEAD_BYTES = 64  # of a message beside its chunk
RETRY_SECONDS = 2.0  # documents take seconds to minutes
# A caller may take this long to send its document, and a second more for so many bytes that have arrived.
RECEIVE_SECONDS, BYTES_PER_SECOND = 60.0, 16_384
SEND_SECONDS = 60.0  # a caller that does not read its responses for this long is disconnected
RECEIVING = 8  # documents that may be received at a time, for each that may be translated
WAITING = 32  # requests with texts that are translated as documents, likewise
MOST_FINDINGS = 1_000  # of a request
CONTENTS, DOCUMENT = "contents", "document"  # fields of errors


class DocumentCalls:
    """Translate documents, a limited number at a time. Not thread-safe: for the event loop only.

    A document has a place from when it has been received until its translation has been sent: slow senders block nobody.

    Args:
        limits: number, size and time of documents.
    """

    def __init__(self, calls: TranslationCalls, limits: LimitOptions, workers: DocumentWorkers) -> None:
        self._calls, self._limits, self._workers = calls, limits, workers
        self._chunk = max(1, min(CHUNK_BYTES, limits.message_bytes - OVERHEAD_BYTES))
        self._places = asyncio.Semaphore(limits.documents)
        # Requests with HTML or a glossary: at most half as many, to leave room for documents.
        self._text_places = asyncio.Semaphore(max(1, limits.documents // 2))
        self._text_requests = 0  # that wait for a place, or have one
        self._ending: set[asyncio.Task[None]] = set()  # calls whose callers do not read
        self.receiving = 0  # documents
        self.held_bytes = 0  # of all documents, as they were received

    async def translate(self, requests: AsyncIterator[Request], context: GrpcContext) -> AsyncGenerator[Response]:
        """Yield the detected format, then progress and findings, the translated document in chunks, and a summary.

        Raises:
            ServingError: the document cannot be translated.
        """
        last = monotonic() + self._limits.document_seconds
        async with aclosing(self._translate(requests, context)) as responses:
            while True:
                try:
                    async with asyncio.timeout(last - monotonic()):
                        response = await anext(responses, None)
                except TimeoutError:
                    most = f"{self._limits.document_seconds:g} s"
                    raise DeadlineError(f"the document took longer than {most} (--max-document-secs)") from None
                if response is None:
                    return
                with self._sending(context):
                    yield response

    async def translate_texts(
        self, request: translation_pb2.TranslateRequest, context: GrpcContext
    ) -> translation_pb2.TranslateResponse:
        """Translate texts, each as a document: HTML, or with a glossary.

        Raises:
            ServingError: a text cannot be translated, or an option does not apply.
        """
        if not request.contents:
            raise InvalidInputError(CONTENTS, "there are no texts")
        check_characters(CONTENTS, sum(map(len, request.contents)), self._limits.queue)
        try:
            query = texts_query_from(request)
            translator = self._calls.find(query.selector)
            with current_call.get().leases.hold(translator), self._waiting():
                sentences = SentenceTranslator(self._calls, translator, query, context)
                sentences.check()
                job = DocumentJob(query, sentences, self._workers, self._chunk)
                async with self._text_places:
                    texts, findings = await job.texts([text.encode() for text in request.contents])
        except InvalidInputError as error:
            field = CONTENTS if error.field == DOCUMENT else error.field.removeprefix("config.")
            raise InvalidInputError(field, error.problem) from error
        translations = [_translation(text.decode()) for text in texts]
        for number, finding in shortened(findings):
            translations[number].findings.append(finding_to(finding))
        return translation_pb2.TranslateResponse(translations=translations, **served_by(sentences.use))

    async def _translate(self, requests: AsyncIterator[Request], context: GrpcContext) -> AsyncGenerator[Response]:
        limit = self._limits.document_bytes
        config = await receive_config(requests, limit)
        query = query_from(config)
        self._check_places()
        translator = self._calls.find(query.selector)
        with current_call.get().leases.hold(translator), self._memory() as hold:  # the same version for the whole document
            with self._receive():
                sentences = SentenceTranslator(self._calls, translator, query, context)
                sentences.check()
                job = DocumentJob(query, sentences, self._workers, self._chunk)
                mime_type = query.format.mime_types[0]
                yield Response(accepted=translation_pb2.DocumentAccepted(format=query.format.name, mime_type=mime_type))
                content = await receive_document(requests, config, limit, hold)
            async with self._places, aclosing(job.responses(content)) as responses:
                del content
                async for response in responses:
                    yield response

    @contextmanager
    def _sending(self, context: GrpcContext) -> Iterator[None]:
        """Cancel the call if its caller does not read a response for SEND_SECONDS."""
        task = asyncio.current_task()
        assert task is not None, "a call is a task"

        def cut_off() -> None:
            ending = asyncio.create_task(_abort(context))
            self._ending.add(ending)  # the event loop itself keeps only a weak reference
            ending.add_done_callback(self._ending.discard)
            task.cancel()

        stalled = asyncio.get_running_loop().call_later(SEND_SECONDS, cut_off)
        try:
            yield
        finally:
            stalled.cancel()

    def _check_places(self) -> None:
        if self._places.locked():
            limit = self._limits.documents
            raise OverloadedError(
                f"{limit:,} documents are being translated, at most {limit:,} are allowed (--max-documents)", RETRY_SECONDS
            )

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count a request with HTML or a glossary."""
        if self._text_requests >= (limit := WAITING * self._limits.documents):
            allowed = f"at most {limit:,} are allowed ({WAITING} x --max-documents)"
            problem = f"{self._text_requests:,} requests with HTML or a glossary are being translated, {allowed}"
            raise OverloadedError(problem, RETRY_SECONDS)
        self._text_requests += 1
        try:
            yield
        finally:
            self._text_requests -= 1

    @contextmanager
    def _receive(self) -> Iterator[None]:
        """Count a document that is being received."""
        limit = RECEIVING * self._limits.documents
        if self.receiving >= limit:
            allowed = f"at most {limit:,} are allowed ({RECEIVING} x --max-documents)"
            raise OverloadedError(f"{self.receiving:,} documents are being received, {allowed}", RETRY_SECONDS)
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1

    @contextmanager
    def _memory(self) -> Iterator[Callable[[int], None]]:
        """Count the bytes of a document until its call ends."""
        limit, mine = self._limits.documents * self._limits.document_bytes, 0

        def hold(size: int) -> None:
            nonlocal mine
            if self.held_bytes + size > limit:
                allowed = f"at most {limit:,} are allowed (--max-documents x --max-document-bytes)"
                raise OverloadedError(f"documents of {self.held_bytes:,} bytes are in memory, {allowed}", RETRY_SECONDS)
            mine += size
            self.held_bytes += size

        try:
            yield hold
        finally:
            self.held_bytes -= mine


def _translation(text: str) -> translation_pb2.Translation:
    best = translation_pb2.Hypothesis(text=text, finish_reason=translation_pb2.FINISH_REASON_STOP)
    return translation_pb2.Translation(translated_text=text, hypotheses=[best])


def shortened(findings: Findings) -> Findings:
    """Return findings, of which the last one counts those that are left out, if there are too many."""
    if len(findings) <= MOST_FINDINGS:
        return findings
    number, finding = findings[MOST_FINDINGS]
    return [*findings[:MOST_FINDINGS], (number, replace(finding, message=f"{len(findings) - MOST_FINDINGS:,} more findings"))]


async def _abort(context: GrpcContext) -> None:
    """End a call whose responses nobody reads; the caller gets the status once it reads on."""
    with suppress(Exception):  # the call has ended, or its caller is gone; `abort` raises an error in any case
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no response was read for {SEND_SECONDS:g} s")


async def receive_config(requests: AsyncIterator[Request], limit: int) -> Config:
    """Receive the first message of a document call; `limit` in bytes.

    Raises:
        InvalidInputError: not a config, or one that announces a document above the limit.
        DeadlineError: it took too long.
    """
    first = await _next(requests, RECEIVE_SECONDS)
    if first is None or first.WhichOneof("part") != "config":
        raise InvalidInputError("config", "missing; it must be the first message")
    if first.config.total_bytes > limit:
        raise _too_large("config.total_bytes", f"{first.config.total_bytes:,}", limit)
    return first.config


async def receive_document(
    requests: AsyncIterator[Request], config: Config, limit: int, hold: Callable[[int], None] = lambda _: None
) -> bytes:
    """Receive the content that follows the config.

    Args:
        config: its first message.
        limit: bytes.
        hold: called with the number of bytes before they are kept; may reject them.

    Raises:
        InvalidInputError: a message has no chunk, or the size is above the limit or not as announced.
        DeadlineError: it took too long.
        OverloadedError: too many bytes are in memory.
    """
    content = bytearray()
    last = monotonic() + RECEIVE_SECONDS
    while (request := await _next(requests, last + len(content) / BYTES_PER_SECOND - monotonic())) is not None:
        if request.WhichOneof("part") != "chunk":
            raise InvalidInputError("chunk", "missing; every message after the first must have one")
        if len(content) + len(request.chunk) > limit:
            raise _too_large("document", f"more than {limit:,}", limit)
        hold(len(request.chunk))
        content += request.chunk
    if config.HasField("total_bytes") and len(content) != config.total_bytes:
        problem = f"{config.total_bytes:,} bytes were announced, {len(content):,} were received"
        raise InvalidInputError("config.total_bytes", problem)
    return bytes(content)


def _too_large(field: str, size: str, limit: int) -> InvalidInputError:
    return InvalidInputError(field, f"the document has {size} bytes, at most {limit:,} are accepted (--max-document-bytes)")


async def _next(requests: AsyncIterator[Request], seconds: float) -> Request | None:
    try:
        async with asyncio.timeout(seconds):
            return await anext(requests, None)
    except TimeoutError as error:
        allowed = f"{RECEIVE_SECONDS:g} s, and a second more for each {BYTES_PER_SECOND:,} bytes"
        raise DeadlineError(f"the document is incomplete; it may take {allowed}") from error
