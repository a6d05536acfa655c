"""Documents of APIs that translate and deliver in two requests: translations that run, and results that wait to be fetched."""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from google.rpc import status_pb2  # type: ignore[import-untyped]
from starlette.datastructures import UploadFile
from starlette.responses import Response

from triptych.v1 import translation_pb2
from triptych_serving.gateway.call import HttpCall, invalid, no_temporary_file
from triptych_serving.gateway.files import replace_file
from triptych_serving.gateway.translation import TranslatedDocument, count_characters, document_language, translate_document
from triptych_serving.rpc.direct_calls import RpcError

KEEP_SECONDS = 900.0  # from the upload
MOST_DOCUMENTS = 256
KEY_BYTES = 24  # of randomness: whoever knows the key may fetch the document
ID = re.compile("[A-Za-z0-9_-]{32}")  # of so many bytes


@dataclass(eq=False)
class StoredDocument:
    """A document that is being translated, or was."""

    id: str
    key: str  # secret
    name: str
    added: float  # clock seconds
    work: asyncio.Future[TranslatedDocument]

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


class DocumentFolder:
    """Documents of several processes, in a file each: a line of JSON, then the translated document or the error's status."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, document: StoredDocument, outcome: TranslatedDocument | status_pb2.Status | None = None) -> None:
        """Write what is known of a document; None: it is being translated. Raises RpcError: that fails."""
        head: dict[str, object] = {"key": document.key, "name": document.name, "added": document.added}
        content = b""
        if isinstance(outcome, TranslatedDocument):
            content = outcome.content
            head["done"] = {"mime_type": outcome.mime_type, "characters": outcome.characters}
        elif outcome is not None:
            content = outcome.SerializeToString()
        try:
            replace_file(self._path / document.id, b"%s\n%s" % (json.dumps(head).encode(), content))
        except OSError as error:
            raise no_temporary_file("a document", error) from None

    async def read(self, id: str) -> StoredDocument | None:
        """Read a document of any process; None: there is none."""
        if not self.has(id):
            return None
        try:
            line, _, content = (await asyncio.to_thread((self._path / id).read_bytes)).partition(b"\n")
        except FileNotFoundError:  # removed a moment ago
            return None
        head = json.loads(line)
        done, work = head.pop("done", None), asyncio.get_running_loop().create_future()
        if done is not None:
            work.set_result(TranslatedDocument(content, **done))
        elif content:
            work.set_exception(RpcError(status_pb2.Status.FromString(content)))
            work.exception()  # asyncio logs errors that nobody asks for
        return StoredDocument(id, work=work, **head)

    def has(self, id: str) -> bool:
        """Tell whether there is such a document."""
        return ID.fullmatch(id) is not None and (self._path / id).exists()

    def remove(self, id: str) -> None:
        """Remove a document, if it is there."""
        (self._path / id).unlink(missing_ok=True)


class StoredDocuments:
    """Keep documents for some minutes, the oldest only while there is room. Not thread-safe: for the event loop only.

    How many are translated at a time is limited by the service that does it.

    Args:
        limit: bytes of all results.
        clock: returns monotonic seconds.
        folder: of several processes on one port, each of which may be asked for a document; None: there is only one.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic, folder: DocumentFolder | None = None) -> None:
        self._limit = limit
        self._clock = clock
        self._folder = folder
        self._documents: dict[str, StoredDocument] = {}  # in the order of their times

    async def upload(
        self,
        call: HttpCall,
        file: UploadFile | None,
        name: str,
        source: str,
        target: str,
        model: str = "",
        glossary: Sequence[translation_pb2.GlossaryTerm] = (),
    ) -> StoredDocument:
        """Start to translate a form's file; `name` is its own by default. Without a source and a model, detect the language.

        Raises:
            RpcError: it is missing, or as `document_language` and `add`.
        """
        if file is None:
            raise invalid("file: missing")
        config = translation_pb2.DocumentConfig(
            file_name=name or file.filename or "",
            source_language_code=source,
            target_language_code=target,
            model=model,
            glossary=glossary,
        )
        content = await file.read()
        if not (source or model):
            found = await document_language(call, content, config)
            if found.is_target:
                return self.add(config.file_name, _unchanged(content, file.content_type or ""))
            config.source_language_code = found.code
        return self.add(config.file_name, translate_document(call, content, config))

    def add(self, name: str, work: Coroutine[Any, Any, TranslatedDocument]) -> StoredDocument:
        """Start to translate a document of this name, and keep it. Raises RpcError: the folder cannot take it."""
        self._drop()
        id, key = (secrets.token_urlsafe(KEY_BYTES) for _ in range(2))
        document = StoredDocument(id, key, name, self._clock(), asyncio.get_running_loop().create_future())
        if self._folder is not None:
            try:
                self._folder.write(document)
            except RpcError:
                work.close()
                raise
            work = _shared(document, self._folder, work)
        document.work = asyncio.create_task(work)
        self._documents[id] = document
        return document

    async def get(self, id: str) -> StoredDocument:
        """Return a document. Raises RpcError: it is unknown, or was dropped."""
        self._drop()
        document = self._documents.get(id)
        if self._folder is not None:
            if document is None:
                document = await self._folder.read(id)
            elif not self._folder.has(id):  # another process removed it
                document = None
        if document is None or self._is_old(document):
            message = f"the document is unknown or was dropped: they are kept for {KEEP_SECONDS / 60:g} minutes"
            raise RpcError.of(grpc.StatusCode.NOT_FOUND, message)
        return document

    def remove(self, id: str) -> None:
        """Forget a document; it is no longer translated."""
        if (document := self._documents.pop(id, None)) is not None:
            document.work.cancel()
        if self._folder is not None:
            self._folder.remove(id)

    def close(self) -> None:
        """Forget all documents."""
        for id in list(self._documents):
            self.remove(id)

    def _drop(self) -> None:
        """Forget documents that have ended and are too old, or for which there is no room."""
        size, documents = sum(document.size for document in self._documents.values()), list(self._documents.values())

        def is_crowded() -> bool:
            return size > self._limit or len(self._documents) >= MOST_DOCUMENTS

        if (folder := self._folder) is not None and is_crowded():  # first those that other processes have delivered
            documents.sort(key=lambda document: folder.has(document.id))
        for document in documents:
            if self._is_old(document) or (is_crowded() and document.work.done()):
                size -= document.size
                self.remove(document.id)

    def _is_old(self, document: StoredDocument) -> bool:
        return document.work.done() and document.added <= self._clock() - KEEP_SECONDS


async def _shared(
    document: StoredDocument, folder: DocumentFolder, work: Coroutine[Any, Any, TranslatedDocument]
) -> TranslatedDocument:
    """Translate a document, and write the outcome for the other processes."""
    try:
        translated = await work
        await asyncio.to_thread(folder.write, document, translated)
    except Exception as error:
        status = error.status if isinstance(error, RpcError) else status_pb2.Status(code=grpc.StatusCode.INTERNAL.value[0])
        with suppress(RpcError):
            folder.write(document, status)
        raise
    return translated


async def _unchanged(content: bytes, mime_type: str) -> TranslatedDocument:
    return TranslatedDocument(content, mime_type, count_characters(content))
