"""Translation of one document: read, translate in batches, write."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from time import monotonic

from triptych.v1 import translation_pb2
from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_serving.services.documents.codec import DocumentQuery, Response, finding_to, progress
from triptych_serving.services.documents.sentence_translator import SentenceTranslator
from triptych_serving.services.documents.work import BATCH_ROWS, DocumentWork, Findings, Results, Step
from triptych_serving.services.documents.workers import DocumentWorker, DocumentWorkers
from triptych_serving.services.v1.codec import served_by

KEEPALIVE_SECONDS = 5.0  # between responses with progress while a document is read or written
PROGRESS_SECONDS = 0.25  # least time between responses with progress while it is translated

Batch = asyncio.Task[list[tuple[SentenceRequest, SentenceResult]]]


class DocumentJob:
    """Translate one document, with a few batches in the engine at a time, so that other callers do not wait for all of it.

    Args:
        chunk: most bytes of one response.
    """

    def __init__(self, query: DocumentQuery, sentences: SentenceTranslator, workers: DocumentWorkers, chunk: int) -> None:
        self._query, self._sentences, self._workers, self._chunk = query, sentences, workers, chunk
        self._sentence_count = 0

    async def responses(self, data: bytes) -> AsyncGenerator[Response]:
        """Yield progress and findings, the translated document in chunks, and a summary.

        Raises:
            ServingError: the document cannot be read, translated or written.
        """
        async with self._workers.worker(data, self._work()) as worker:
            parts = self._responses(worker, data)
            del data  # as large as the document
            async with aclosing(parts):
                async for response in parts:
                    yield response

    async def texts(self, texts: Sequence[bytes]) -> tuple[list[bytes], Findings]:
        """Return the translations of texts, each of which is a document, and findings.

        Raises:
            ServingError: a text cannot be translated.
        """
        use, began = self._sentences.use, monotonic()
        async with self._workers.worker(b"".join(texts), self._work()) as worker:
            _, findings = await worker.call(DocumentWork.read, *texts)
            use.stages["preprocess"] = began, monotonic()
            found = list(findings)
            async with aclosing(self._steps(worker)) as steps:
                async for step in steps:
                    found += step.findings
            began = monotonic()
            translated, findings = await worker.call(DocumentWork.render)
            use.stages["postprocess"] = began, monotonic()
        return translated, [*found, *findings]

    def _work(self) -> DocumentWork:
        query, languages = self._query, self._sentences.languages
        reading, rules = query.read_options(languages), query.rules(languages)
        return DocumentWork(query.format, reading, rules, self._sentences.rows)

    async def _responses(self, worker: DocumentWorker, data: bytes) -> AsyncGenerator[Response]:
        use, began = self._sentences.use, monotonic()
        reading = asyncio.ensure_future(worker.call(DocumentWork.read, data))
        del data
        async for response in _keepalive(reading, progress(0, 0)):
            yield response
        total, findings = await reading
        use.stages["preprocess"] = began, monotonic()
        for _, finding in findings:
            yield Response(finding=finding_to(finding))
        async with aclosing(self._translate(worker, total)) as translating:
            async for one in translating:
                yield one
        began = monotonic()
        writing = asyncio.ensure_future(worker.call(DocumentWork.render))
        async for response in _keepalive(writing, progress(total, total)):
            yield response
        [content], findings = await writing
        for _, finding in findings:
            yield Response(finding=finding_to(finding))
        use.stages["postprocess"] = began, monotonic()
        for start in range(0, len(content), self._chunk):
            yield Response(chunk=content[start : start + self._chunk])
        summary = translation_pb2.DocumentSummary(
            segments=total, sentences=self._sentence_count, total_bytes=len(content), **served_by(use)
        )
        yield Response(summary=summary)

    async def _translate(self, worker: DocumentWorker, total: int) -> AsyncGenerator[Response]:
        done, reported = 0, monotonic()
        yield progress(0, total)
        async with aclosing(self._steps(worker)) as steps:
            async for step in steps:
                done += step.finished
                self._sentence_count += step.sentences
                for _, finding in step.findings:
                    yield Response(finding=finding_to(finding))
                if monotonic() - reported >= PROGRESS_SECONDS or (step.finished and done == total):
                    reported = monotonic()
                    yield progress(done, total)

    def _steps(self, worker: DocumentWorker) -> AsyncGenerator[Step]:
        async def advance(results: Results, room: int) -> Step:
            return await worker.call(DocumentWork.advance, results, room)

        return drive(advance, self._sentences.translate, self._sentences.rows)


async def drive(
    advance: Callable[[Results, int], Awaitable[Step]],
    translate: Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceResult]]],
    rows: int,
) -> AsyncGenerator[Step]:
    """Translate all units of a document, and yield its steps.

    Args:
        advance: as DocumentWork.advance.
        translate: translates requests that are all aligned or all not.
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
            step = await advance(results, max(1, rows // BATCH_ROWS) - len(batches))
            batches.update(asyncio.create_task(run(requests)) for requests in step.batches)
            yield step
            if step.is_finished:
                break
            results = []
            if batches:
                timeout = 0.0 if step.can_read else None
                done, batches = await asyncio.wait(batches, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for error in [batch.exception() for batch in done]:  # look at all of them, or asyncio logs the others
                    if error is not None:
                        raise error
                results = [result for batch in done for result in batch.result()]
    finally:
        for batch in batches:
            batch.cancel()
        await asyncio.gather(*batches, return_exceptions=True)  # until their rows have left the engine


async def _keepalive(
    work: asyncio.Future[tuple[int, Findings]] | asyncio.Future[tuple[list[bytes], Findings]],
    response: Response,
) -> AsyncGenerator[Response]:
    """Yield a response every KEEPALIVE_SECONDS until the work is done."""
    try:
        while not (await asyncio.wait((work,), timeout=KEEPALIVE_SECONDS))[0]:
            yield response
    finally:
        work.cancel()  # has no effect once a thread has started it
