"""Documents of APIs that translate and deliver in two requests: translations that run, and results that wait to be fetched."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import grpc
from starlette.datastructures import UploadFile
from starlette.responses import Response

from triptych.v1 import translation_pb2
from triptych_serving.gateway.call import HttpCall, invalid
from triptych_serving.gateway.translation import TranslatedDocument, count_characters, document_language, translate_document
from triptych_serving.rpc.direct_calls import RpcError

KEEP_SECONDS = 900.0  # from the upload
MOST_DOCUMENTS = 256
KEY_BYTES = 24  # of randomness: whoever knows the key may fetch the document


@dataclass(eq=False)
class StoredDocument:
    """A document that is being translated, or was."""

    id: str
    key: str  # secret
    name: str
    added: float  # clock seconds
    work: asyncio.Task[TranslatedDocument]

    @property
    def size(self) -> int:
        """Bytes of the result; 0 while there is none."""
        work = self.work
        return len(work.result().content) if work.done() and not work.cancelled() and work.exception() is None else 0

    def response(self) -> Response:
        """Return the result as a download. Raises RpcError: it failed, or is not ready."""
        if not self.work.done():
            raise RpcError.of(grpc.StatusCode.UNAVAILABLE, "the document is not translated yet")
        document = self.work.result()
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(self.name, safe='')}"}
        return Response(document.content, media_type=document.mime_type or "application/octet-stream", headers=headers)


class StoredDocuments:
    """Keep documents for some minutes, the oldest only while there is room. Not thread-safe: for the event loop only.

    How many are translated at a time is limited by the service that does it.

    Args:
        limit: bytes of all results.
        clock: returns monotonic seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._documents: dict[str, StoredDocument] = {}  # in the order of their times

    async def upload(
        self, call: HttpCall, file: UploadFile | None, name: str, source: str, target: str, model: str = ""
    ) -> StoredDocument:
        """Start to translate a form's file; `name` is its own by default. Without a source and a model, detect the language.

        Raises:
            RpcError: it is missing, or as `document_language`.
        """
        if file is None:
            raise invalid("file: missing")
        config = translation_pb2.DocumentConfig(
            file_name=name or file.filename or "", source_language_code=source, target_language_code=target, model=model
        )
        content = await file.read()
        if not (source or model):
            found = await document_language(call, content, config)
            if found.is_target:
                return self.add(config.file_name, _unchanged(content, file.content_type or ""))
            config.source_language_code = found.code
        return self.add(config.file_name, translate_document(call, content, config))

    def add(self, name: str, work: Coroutine[Any, Any, TranslatedDocument]) -> StoredDocument:
        """Start to translate a document of this name, and keep it."""
        self._drop()
        id, key = (secrets.token_urlsafe(KEY_BYTES) for _ in range(2))
        document = StoredDocument(id, key, name, self._clock(), asyncio.create_task(work))
        self._documents[id] = document
        return document

    def get(self, id: str) -> StoredDocument:
        """Return a document. Raises RpcError: it is unknown, or was dropped."""
        self._drop()
        if id not in self._documents:
            message = f"the document is unknown or was dropped: they are kept for {KEEP_SECONDS / 60:g} minutes"
            raise RpcError.of(grpc.StatusCode.NOT_FOUND, message)
        return self._documents[id]

    def remove(self, id: str) -> None:
        """Forget a document; it is no longer translated."""
        if (document := self._documents.pop(id, None)) is not None:
            document.work.cancel()

    def close(self) -> None:
        """Forget all documents."""
        for id in list(self._documents):
            self.remove(id)

    def _drop(self) -> None:
        """Forget documents that have ended and are too old, or for which there is no room."""
        size, expired = sum(document.size for document in self._documents.values()), self._clock() - KEEP_SECONDS
        for document in list(self._documents.values()):
            crowded = size > self._limit or len(self._documents) >= MOST_DOCUMENTS
            if document.work.done() and (crowded or document.added <= expired):
                size -= document.size
                self.remove(document.id)


async def _unchanged(content: bytes, mime_type: str) -> TranslatedDocument:
    return TranslatedDocument(content, mime_type, count_characters(content))
