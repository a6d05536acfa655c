"""A document to the server, and its translation back; blocking."""

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeAlias

import grpc

from triptych.v1.translation_pb2 import TranslateDocumentRequest, TranslateDocumentResponse
from triptych_client.document_flow import DocumentFlow
from triptych_client.document_results import TranslatedDocument
from triptych_client.status import error_of

# A string: grpc's classes are generic for type checkers only.
DocumentMethod: TypeAlias = "grpc.StreamStreamMultiCallable[TranslateDocumentRequest, TranslateDocumentResponse]"


def send_document(method: DocumentMethod, flow: DocumentFlow) -> TranslatedDocument:
    """Send it, and wait for the translation. Raises TriptychClientError: it failed, retries included."""
    while True:
        try:
            return _Line(flow).run(method)
        except grpc.RpcError as failure:
            pause = flow.pause_after(error_of(failure, flow.job.call.request_id))
        time.sleep(pause)


class _Line:
    """One call."""

    def __init__(self, flow: DocumentFlow) -> None:
        self._flow = flow
        self._watch = Watch(flow.job.call.timeout_seconds)
        self._wanted = threading.Event()  # the document, or nothing any more

    def run(self, method: DocumentMethod) -> TranslatedDocument:
        self._flow.connect()
        call = method(self._requests(), metadata=self._flow.job.call.metadata)
        try:
            with self._watch.over(call.cancel):
                for message in call:
                    self._watch.touch()
                    self._flow.take(message)
                    if self._flow.accepted:
                        self._wanted.set()
            return self._flow.result()
        except grpc.RpcError:
            if self._watch.expired:
                raise self._flow.stood_still() from None
            raise
        finally:
            call.cancel()
            self._wanted.set()

    def _requests(self) -> Iterator[TranslateDocumentRequest]:
        """In a thread of gRPC's."""
        yield self._flow.job.config()
        self._wanted.wait()
        if self._flow.accepted:
            for chunk in self._flow.job.chunks():
                self._watch.touch()
                yield chunk


class Watch:
    """Ends a call in which nothing happens for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._seconds = seconds
        self._touched = time.monotonic()
        self._over = threading.Event()

    def touch(self) -> None:
        """Something has happened."""
        self._touched = time.monotonic()

    def over(self, cancel: Callable[[], object]) -> Self:
        """Begin to watch, until the `with` block ends."""
        self._thread = threading.Thread(target=self._look, args=(cancel,), name="triptych-watch", daemon=True)
        return self

    def __enter__(self) -> None:
        self.touch()
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look(self, cancel: Callable[[], object]) -> None:
        left = self._seconds
        while not self._over.wait(left):
            left = self._touched + self._seconds - time.monotonic()
            if left <= 0:
                self.expired = True
                cancel()
                return
