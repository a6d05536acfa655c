"""TranslateDocument: its messages, and the calls, blocking and for asyncio."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeAlias

import grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2 import TranslateDocumentRequest, TranslateDocumentResponse
from triptych_client.arguments import DocumentArguments, check_names
from triptych_client.call import Attempts, Call
from triptych_client.connection import RpcMethod
from triptych_client.errors import DeadlineExceededError, TriptychClientError
from triptych_client.messages import fill, options_message, read, served_from
from triptych_client.results import DocumentFinding, DocumentProgress, TranslatedDocument
from triptych_client.status import broken_contract, error_of, error_of_async_stream

OnProgress: TypeAlias = Callable[[DocumentProgress], object]

TRANSLATE_DOCUMENT = RpcMethod(
    "/triptych.v1.TranslationService/TranslateDocument", TranslateDocumentRequest, TranslateDocumentResponse
)
CHUNK_BYTES = 64 * 1024
READ_OPTIONS = frozenset(translation_pb2.DocumentReadOptions.DESCRIPTOR.fields_by_name)


class DocumentExchange:
    """The messages to and from the server for one document, without input and output.

    Args:
        arguments: Those of `triptych_client.arguments.DocumentArguments`, without those of the call.
        call: Identity, timeout and retries; the timeout is the longest time without progress.
        max_message_bytes: Limit of the client; chunks are at most half as long.

    Raises:
        TypeError: An argument is unknown, or a single text where several belong.
        ValueError: An argument is out of range.
    """

    def __init__(
        self, content: bytes, arguments: Mapping[str, Any], call: Call, max_message_bytes: int, progress: OnProgress | None
    ) -> None:
        self.call = call
        self.config = _config(arguments, len(content))
        self.accepted = False
        self._content = content
        self._chunk_bytes = max(1, min(CHUNK_BYTES, max_message_bytes // 2))
        self._progress = progress
        self._attempts = Attempts(call)
        self._started = False
        self._format: dict[str, str] = {}
        self._findings: list[DocumentFinding] = []
        self._received: list[bytes] = []
        self._summary: translation_pb2.DocumentSummary | None = None

    def chunks(self) -> Iterator[TranslateDocumentRequest]:
        """Yield the messages after the first one."""
        for start in range(0, len(self._content), self._chunk_bytes):
            yield TranslateDocumentRequest(chunk=self._content[start : start + self._chunk_bytes])

    def take(self, message: TranslateDocumentResponse) -> None:
        """Process a message of the server."""
        event = message.WhichOneof("event")
        if event == "accepted":
            self.accepted = True
            self._format = {"format": message.accepted.format, "mime_type": message.accepted.mime_type}
            return
        self._started = True
        if event == "progress" and self._progress is not None:
            self._progress(read(DocumentProgress, message.progress))
        elif event == "finding":
            self._findings.append(read(DocumentFinding, message.finding))
        elif event == "chunk":
            self._received.append(message.chunk)
        elif event == "summary":
            self._summary = message.summary

    def result(self) -> TranslatedDocument:
        """Return the document after the end of the stream. Raises ServerError if something is missing."""
        content, summary = b"".join(self._received), self._summary
        if summary is None or not self.accepted or len(content) != summary.total_bytes:
            raise broken_contract("the stream ended before its document was complete", self.call.request_id)
        return TranslatedDocument(
            content=content,
            findings=tuple(self._findings),
            segments=summary.segments,
            sentences=summary.sentences,
            **self._format,
            **served_from(summary, self.call.request_id),
        )

    def pause_after(self, error: TriptychClientError) -> float:
        """Return the seconds to wait before the document is sent again.

        Raises:
            TriptychClientError: No retry is possible, or the server has begun to translate.
        """
        if self._started:
            raise error
        pause = self._attempts.pause_after(error)
        self.accepted = False
        return pause

    def stalled(self) -> DeadlineExceededError:
        """Make the error for a call without progress."""
        message = f"no progress for {self.call.timeout_seconds:g} s (`timeout_seconds`)"
        return DeadlineExceededError(message, code="DEADLINE_EXCEEDED", request_id=self.call.request_id)


def _config(arguments: Mapping[str, Any], total_bytes: int) -> TranslateDocumentRequest:
    """Make the first message."""
    check_names("translate_document", arguments, DocumentArguments)
    values = {name: value for name, value in arguments.items() if name not in READ_OPTIONS}
    read_options = {name: value for name, value in arguments.items() if name in READ_OPTIONS}
    if not isinstance(columns := read_options.get("columns", ""), str):
        read_options["columns"] = map(str, columns)
    if options := values.get("options"):
        values["options"] = options_message(options)
    return TranslateDocumentRequest(
        config=fill(
            translation_pb2.DocumentConfig,
            values | {"read_options": fill(translation_pb2.DocumentReadOptions, read_options), "total_bytes": total_bytes},
        )
    )


def send_document(channel: grpc.Channel, exchange: DocumentExchange) -> TranslatedDocument:
    """Send a document and wait for its translation. Raises TriptychClientError if the last attempt failed."""
    while True:
        try:
            return _DocumentCall(exchange).run(channel)
        except grpc.RpcError as failure:
            pause = exchange.pause_after(error_of(failure, exchange.call.request_id))
        time.sleep(pause)


class _DocumentCall:
    """One attempt. A thread cancels it after `timeout_seconds` without progress."""

    def __init__(self, exchange: DocumentExchange) -> None:
        self._exchange = exchange
        self._answered = threading.Event()  # the server wants the document, or the call is over
        self._seconds = exchange.call.timeout_seconds
        self._touched = time.monotonic()
        self._takes = False
        self._over = threading.Event()
        self._expired = False

    def run(self, channel: grpc.Channel) -> TranslatedDocument:
        call = self._exchange.call.start(channel.stream_stream, TRANSLATE_DOCUMENT, self._requests())
        watchdog = threading.Thread(target=self._watch, args=(call.cancel,), name="triptych-watch", daemon=True)
        watchdog.start()
        try:
            for message in call:
                self._takes = True  # and calls the user's function, whose time does not count
                self._exchange.take(message)
                self._touched, self._takes = time.monotonic(), False
                if self._exchange.accepted:
                    self._answered.set()
            return self._exchange.result()
        except grpc.RpcError:
            if self._expired:
                raise self._exchange.stalled() from None
            raise
        finally:
            call.cancel()
            self._answered.set()
            self._over.set()
            watchdog.join()

    def _requests(self) -> Iterator[TranslateDocumentRequest]:
        """Yield the messages, in a thread of gRPC."""
        yield self._exchange.config
        self._answered.wait()
        if self._exchange.accepted:
            for chunk in self._exchange.chunks():
                self._touched = time.monotonic()
                yield chunk

    def _watch(self, cancel: Callable[[], object]) -> None:
        left = self._seconds
        while not self._over.wait(left):
            left = self._seconds if self._takes else self._touched + self._seconds - time.monotonic()
            if left <= 0:
                self._expired = True
                cancel()
                return


async def send_document_async(channel: grpc.aio.Channel, exchange: DocumentExchange) -> TranslatedDocument:
    """`send_document` for asyncio; cancelling the task cancels the call."""
    while True:
        try:
            return await _AsyncDocumentCall(exchange).run(channel)
        except grpc.RpcError as failure:
            pause = exchange.pause_after(error_of_async_stream(failure, exchange.call.request_id))
        await asyncio.sleep(pause)


class _AsyncDocumentCall:
    """`_DocumentCall` for asyncio, with a timeout that is moved instead of a thread."""

    def __init__(self, exchange: DocumentExchange) -> None:
        self._exchange = exchange
        self._answered = asyncio.Event()  # the server wants the document, or the call is over
        self._limit = asyncio.timeout(exchange.call.timeout_seconds)

    async def run(self, channel: grpc.aio.Channel) -> TranslatedDocument:
        call = self._exchange.call.start(channel.stream_stream, TRANSLATE_DOCUMENT, self._requests())
        try:
            async with self._limit:
                with self._exchange.call.cancellable():
                    async for message in call:
                        self._touch()
                        self._exchange.take(message)
                        self._touch()  # the user's function may have taken long
                        if self._exchange.accepted:
                            self._answered.set()
            return self._exchange.result()
        except TimeoutError:
            if self._limit.expired():
                raise self._exchange.stalled() from None
            raise
        finally:
            call.cancel()
            self._answered.set()

    async def _requests(self) -> AsyncIterator[TranslateDocumentRequest]:
        yield self._exchange.config
        await self._answered.wait()
        if self._exchange.accepted:
            for chunk in self._exchange.chunks():
                self._touch()
                yield chunk

    def _touch(self) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._exchange.call.timeout_seconds)
