"""Translation of one document: read, translate in batches, write."""

import asyncio
import threading
from asyncio import Future
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from triptych_documents.driver import DocumentDriver
from triptych_documents.errors import DocumentError
from triptych_documents.findings import Finding
from triptych_documents.format import Document, FormatInfo, ReadOptions, load_format
from triptych_documents.interruption import checkpoint, interruptible
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Piece
from triptych_serving.errors import InvalidInputError
from triptych_serving.services.documents.codec import (
    DocumentEvent,
    DocumentProgress,
    DocumentQuery,
    DocumentSummary,
    document_error,
)
from triptych_serving.services.documents.sentence_translator import SentenceTranslator

MAX_SEGMENTS = 1_000_000
KEEPALIVE_SECONDS = 5.0  # between progress events while a document is read or written
PROGRESS_SECONDS = 0.25  # least time between progress events while it is translated
BATCH_ROWS = 32  # sentences in one call to the engine; in each of the engine's turns a call contributes one row
STEP_UNITS = 500  # segments read in one go: other documents need the thread too

RunInThread = Callable[..., "Future[Any]"]
Batch = asyncio.Task[list[tuple[SentenceRequest, SentenceResult]]]


class DocumentJob:
    """Translate one document, with a few batches in the engine at a time, so that other callers do not wait for all of it.

    Args:
        run_heavy: calls a function for a whole document of so many bytes in a thread.
        run_light: calls a function for some segments of such a document in a thread.
        chunk: most bytes of one event.
    """

    def __init__(
        self,
        query: DocumentQuery,
        sentences: SentenceTranslator,
        run_heavy: RunInThread,
        run_light: RunInThread,
        chunk: int,
    ) -> None:
        self._query, self._sentences, self._chunk = query, sentences, chunk
        self._run_heavy, self._run_light = run_heavy, run_light
        self._translator: UnitTranslator | None = None
        self._translations: dict[int, Sequence[Piece]] = {}
        self._sentence_count = 0
        self._stop = threading.Event()  # the call has ended, threads give up

    async def open(self, make_translator: Callable[[TranslationRules], UnitTranslator] = UnitTranslator) -> None:
        """Prepare the rules of the translation. Must be called first.

        Raises:
            InvalidInputError: the glossary, or another rule, is invalid.
        """
        self._translator = await self._run_light(0, _open, make_translator, self._query.rules(self._sentences.languages))

    async def events(self, data: bytes) -> AsyncGenerator[DocumentEvent]:
        """Yield progress and findings, the translated document in chunks, and a summary.

        Raises:
            ServingError: the document cannot be read, translated or written.
        """
        parts = self._events(data)
        del data  # as large as the document
        try:
            async with aclosing(parts):
                async for event in parts:
                    yield event
        finally:
            self._stop.set()

    async def _events(self, data: bytes) -> AsyncGenerator[DocumentEvent]:
        use, began = self._sentences.use, monotonic()
        options = self._query.read_options(self._sentences.languages)
        size = len(data)
        reading: Future[Document] = self._run_heavy(size, _run, self._stop, _read, data, self._query.format, options)
        async for event in _keepalive(reading, DocumentProgress(0, 0)):
            yield event
        document = await reading
        del data, reading  # as large as the document
        use.stages["preprocess"] = began, monotonic()
        known = len(document.findings)
        for finding in document.findings:
            yield finding
        async with aclosing(self._translate(document, size)) as translating:
            async for one in translating:
                yield one
        total, began = len(document.units), monotonic()
        writing: Future[bytes] = self._run_heavy(size, _run, self._stop, _render, document, self._translations)
        async for event in _keepalive(writing, DocumentProgress(total, total)):
            yield event
        content = await writing
        for finding in document.findings[known:]:
            yield finding
        use.stages["postprocess"] = began, monotonic()
        for start in range(0, len(content), self._chunk):
            yield content[start : start + self._chunk]
        yield DocumentSummary(use, total, self._sentence_count, len(content))

    async def _translate(self, document: Document, size: int) -> AsyncGenerator[DocumentProgress | Finding]:
        assert self._translator is not None, "open() is called first"
        total, told = len(document.units), monotonic()
        yield DocumentProgress(0, total)
        rows = self._sentences.rows
        driver = DocumentDriver(self._translator, enumerate(document.units), window=rows, step_units=STEP_UNITS)
        run_light = partial(self._run_light, size, _run, self._stop)
        async with aclosing(drive(driver, self._sentences.translate, run_light, rows)) as steps:
            async for finished in steps:
                for unit in finished:
                    assert isinstance(unit.key, int), "the key of a unit is its index"
                    self._translations[unit.key] = unit.pieces
                    self._sentence_count += len(unit.pairs)
                    for finding in unit.findings:
                        yield finding
                if monotonic() - told >= PROGRESS_SECONDS or (finished and len(self._translations) == total):
                    told = monotonic()
                    yield DocumentProgress(len(self._translations), total)


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


def _open(make_translator: Callable[[TranslationRules], UnitTranslator], rules: TranslationRules) -> UnitTranslator:
    with _as_invalid_input():
        return make_translator(rules)


def _read(data: bytes, document_format: FormatInfo, options: ReadOptions) -> Document:
    with _as_invalid_input():
        document = load_format(document_format).read(data, replace(options, max_units=MAX_SEGMENTS))
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


async def _keepalive(work: "Future[Document] | Future[bytes]", event: DocumentProgress) -> AsyncGenerator[DocumentProgress]:
    """Yield an event every KEEPALIVE_SECONDS until the work is done."""
    try:
        while not (await asyncio.wait((work,), timeout=KEEPALIVE_SECONDS))[0]:
            yield event
    finally:
        work.cancel()  # has no effect once the work has started
