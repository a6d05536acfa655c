"""Translation of one document: read, translate in batches, write."""

import asyncio
import threading
from asyncio import Future
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from triptych.v1 import translation_pb2
from triptych_documents.driver import DocumentDriver
from triptych_documents.errors import DocumentError
from triptych_documents.format import Document, FormatInfo, ReadOptions
from triptych_documents.interruption import checkpoint, interruptible
from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Piece
from triptych_serving.errors import InvalidInputError
from triptych_serving.services.documents.codec import DocumentQuery, Response, document_error, finding_to, progress
from triptych_serving.services.documents.sentence_translator import SentenceTranslator
from triptych_serving.services.v1.codec import served_by

MAX_SEGMENTS = 1_000_000
KEEPALIVE_SECONDS = 5.0  # between responses with progress while a document is read or written
PROGRESS_SECONDS = 0.25  # least time between responses with progress while it is translated
BATCH_ROWS = 32  # sentences in one call to the engine; in each of the engine's turns a call contributes one row
SMALL_BYTES = 256 * 1024  # of a document that is read within a second or two
STEP_UNITS = 500  # segments read in one go: other documents need the thread too

Result = TypeVar("Result")
Batch = asyncio.Task[list[tuple[SentenceRequest, SentenceResult]]]


class DocumentThreads:
    """Threads for reading and writing documents, which must not block the event loop or other callers' texts.

    They are started when they are first needed. Small documents have threads of their own, so that they do not wait for large
    ones; more threads would not help, as Python runs one at a time.

    Args:
        begin: first action of each thread.
    """

    def __init__(self, begin: Callable[[], None] | None = None) -> None:
        self._heavy, self._light = (
            [ThreadPoolExecutor(1, f"triptych-{size}-{work}", begin) for size in ("small", "large")]
            for work in ("document", "segments")
        )

    def run_heavy(self, size: int, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """Call `function(*arguments)` for a whole document, which takes seconds; `size` in bytes."""
        return asyncio.get_running_loop().run_in_executor(self._heavy[size > SMALL_BYTES], function, *arguments)

    def run_light(self, size: int, function: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """Call `function(*arguments)` for some segments of a document, which takes milliseconds, or more if they are long."""
        return asyncio.get_running_loop().run_in_executor(self._light[size > SMALL_BYTES], function, *arguments)

    def close(self) -> None:
        """Drop all tasks that have not started."""
        for pool in (*self._heavy, *self._light):
            pool.shutdown(wait=False, cancel_futures=True)


class DocumentJob:
    """Translate one document, with a few batches in the engine at a time, so that other callers do not wait for all of it.

    Args:
        chunk: most bytes of one response.
    """

    def __init__(self, query: DocumentQuery, sentences: SentenceTranslator, threads: DocumentThreads, chunk: int) -> None:
        self._query, self._sentences, self._threads, self._chunk = query, sentences, threads, chunk
        self._translator: UnitTranslator | None = None
        self._translations: dict[int, Sequence[Piece]] = {}
        self._sentence_count = 0
        self._stop = threading.Event()  # the call has ended, threads give up

    async def open(self) -> None:
        """Prepare the rules of the translation. Must be called first."""
        self._translator = await self._threads.run_light(0, UnitTranslator, self._query.rules(self._sentences.languages))

    async def responses(self, data: bytes) -> AsyncGenerator[Response]:
        """Yield progress and findings, the translated document in chunks, and a summary.

        Raises:
            ServingError: the document cannot be read, translated or written.
        """
        parts = self._responses(data)
        del data  # as large as the document
        try:
            async with aclosing(parts):
                async for response in parts:
                    yield response
        finally:
            self._stop.set()

    async def _responses(self, data: bytes) -> AsyncGenerator[Response]:
        use, began = self._sentences.use, monotonic()
        options = self._query.read_options(self._sentences.languages)
        size = len(data)
        reading: Future[Document] = self._threads.run_heavy(size, _run, self._stop, _read, data, self._query.format, options)
        async for response in _keepalive(reading, progress(0, 0)):
            yield response
        document = await reading
        del data, reading  # as large as the document
        use.stages["preprocess"] = began, monotonic()
        known = len(document.findings)
        for finding in document.findings:
            yield finding_to(finding)
        async with aclosing(self._translate(document, size)) as translating:
            async for one in translating:
                yield one
        total, began = len(document.units), monotonic()
        writing: Future[bytes] = self._threads.run_heavy(size, _run, self._stop, _render, document, self._translations)
        async for response in _keepalive(writing, progress(total, total)):
            yield response
        content = await writing
        for finding in document.findings[known:]:
            yield finding_to(finding)
        use.stages["postprocess"] = began, monotonic()
        for start in range(0, len(content), self._chunk):
            yield Response(chunk=content[start : start + self._chunk])
        summary = translation_pb2.DocumentSummary(
            segments=total, sentences=self._sentence_count, total_bytes=len(content), **served_by(use)
        )
        yield Response(summary=summary)

    async def _translate(self, document: Document, size: int) -> AsyncGenerator[Response]:
        assert self._translator is not None, "open() is called first"
        total, told = len(document.units), monotonic()
        yield progress(0, total)
        rows = self._sentences.rows
        driver = DocumentDriver(self._translator, enumerate(document.units), window=rows, step_units=STEP_UNITS)
        run_light = partial(self._threads.run_light, size, _run, self._stop)
        async with aclosing(drive(driver, self._sentences.translate, run_light, rows)) as steps:
            async for finished in steps:
                for unit in finished:
                    assert isinstance(unit.key, int), "the key of a unit is its index"
                    self._translations[unit.key] = unit.pieces
                    self._sentence_count += len(unit.pairs)
                    for finding in unit.findings:
                        yield finding_to(finding)
                if monotonic() - told >= PROGRESS_SECONDS or (finished and len(self._translations) == total):
                    told = monotonic()
                    yield progress(len(self._translations), total)


async def drive(
    driver: DocumentDriver,
    translate: Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceResult]]],
    run_light: Callable[..., Awaitable[Any]],
    rows: int,
) -> AsyncGenerator[Sequence[TranslatedUnit]]:
    """Translate all units, and yield those that are finished after each batch; often none.

    Args:
        driver: of the document; used in the threads of `run_light` only.
        translate: translates requests that are all aligned or all not.
        run_light: calls a function in a thread.
        rows: most requests in flight.

    Raises:
        ServingError: the document cannot be translated.
    """
    batches: set[Batch] = set()
    results: list[tuple[SentenceRequest, SentenceResult]] = []

    async def run(requests: Sequence[SentenceRequest]) -> list[tuple[SentenceRequest, SentenceResult]]:
        return list(zip(requests, await translate(requests), strict=True))

    try:
        while True:
            finished = await run_light(driver.advance, results)
            while len(batches) < max(1, rows // BATCH_ROWS) and (requests := driver.take(BATCH_ROWS)):
                batches.add(asyncio.create_task(run(requests)))
            yield finished
            if driver.is_finished:
                break
            results = []
            if batches:
                timeout = 0.0 if driver.can_read else None
                done, batches = await asyncio.wait(batches, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for error in [batch.exception() for batch in done]:  # look at all of them, or asyncio logs the others
                    if error is not None:
                        raise error
                results = [result for batch in done for result in batch.result()]
    finally:
        for batch in batches:
            batch.cancel()
        await asyncio.gather(*batches, return_exceptions=True)  # until their rows have left the engine


def _read(data: bytes, document_format: FormatInfo, options: ReadOptions) -> Document:
    with _as_invalid_input():
        document = document_format.read(data, replace(options, max_units=MAX_SEGMENTS))
    if (segments := len(document.units)) > MAX_SEGMENTS:
        raise InvalidInputError("document", f"{segments:,} segments, at most {MAX_SEGMENTS:,} are allowed; split the document")
    return document


def _render(document: Document, translations: Mapping[int, Sequence[Piece]]) -> bytes:
    with _as_invalid_input():
        return document.render(translations)


@contextmanager
def _as_invalid_input() -> Iterator[None]:
    try:
        yield
    except DocumentError as error:
        raise document_error(error) from error


def _run(stop: threading.Event, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(*arguments)` unless `stop` is set, and until it is."""
    with interruptible(stop):
        checkpoint()
        return function(*arguments)


async def _keepalive(work: "Future[Document] | Future[bytes]", response: Response) -> AsyncGenerator[Response]:
    """Yield a response every KEEPALIVE_SECONDS until the work is done."""
    try:
        while not (await asyncio.wait((work,), timeout=KEEPALIVE_SECONDS))[0]:
            yield response
    finally:
        work.cancel()  # has no effect once the work has started
