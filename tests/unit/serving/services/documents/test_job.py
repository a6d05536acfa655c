"""Translation of one document: batches in the engine, responses, errors, and cancellation."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.v1.translation_pb2 import DocumentConfig
from triptych_documents.driver import DocumentDriver
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.interruption import checkpoint
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceResult, SentenceTranslation
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Piece, Unit
from triptych_serving.errors import InvalidInputError, UnavailableError
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.services.documents import job as document_job
from triptych_serving.services.documents.codec import Response, finding_to, progress, query_from
from triptych_serving.services.documents.job import BATCH_ROWS, STEP_UNITS, DocumentJob, DocumentThreads, drive

from ...calls import in_loop

UNITS = [Unit((f"text {index}",), f"line {index}") for index in range(200)]
ROWS = 3 * BATCH_ROWS
NOTE = Finding(FindingKind.FORMAT, Severity.NOTE, "line 1", "odd")
Translate = Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceResult]]]


class Engine:
    """Translate to upper case, and count the requests in flight."""

    def __init__(self) -> None:
        self.batches: list[Sequence[SentenceRequest]] = []
        self.rows = self.most = 0

    async def __call__(self, requests: Sequence[SentenceRequest]) -> Sequence[SentenceResult]:
        self.batches.append(requests)
        self.rows += len(requests)
        self.most = max(self.most, self.rows)
        try:
            await asyncio.sleep(0)
            return [SentenceTranslation(request.text.upper()) for request in requests]
        finally:
            self.rows -= len(requests)


async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def steps_of(translate: Translate, units: Sequence[Unit] = UNITS) -> Any:
    translator = UnitTranslator(TranslationRules(source_language="en"))
    driver = DocumentDriver(translator, enumerate(units), window=ROWS, step_units=STEP_UNITS)
    return drive(driver, translate, inline, ROWS)


@pytest.mark.parametrize("count", [0, 1, BATCH_ROWS, len(UNITS)])
@in_loop
async def test_every_unit_is_translated_once_in_bounded_batches(count: int) -> None:
    engine = Engine()
    finished = [unit async for step in steps_of(engine, UNITS[:count]) for unit in step]
    assert sorted(unit.key for unit in finished) == list(range(count))
    assert all(unit.pieces == (unit.unit.text.upper(),) for unit in finished)
    assert engine.most <= ROWS
    assert all(len(batch) <= BATCH_ROWS for batch in engine.batches)


@in_loop
async def test_errors_end_the_document_and_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(requests: Sequence[SentenceRequest]) -> Sequence[SentenceResult]:
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError, match="gone"):
        await anext(step async for step in steps_of(fail) if step)
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


@in_loop
async def test_closing_cancels_requests_in_flight() -> None:
    engine = Engine()

    async def hang(requests: Sequence[SentenceRequest]) -> Sequence[SentenceResult]:
        results = await engine(requests)
        if requests[0].text != "text 0":
            engine.rows += 1
            try:
                await asyncio.Event().wait()
            finally:
                engine.rows -= 1
        return results

    steps = steps_of(hang)
    while not await anext(steps):
        pass
    assert engine.rows > 0
    await steps.aclose()
    assert engine.rows == 0


class LinesFormat:
    """A format and its document: every line is a unit."""

    findings = (NOTE,)

    def __init__(self) -> None:
        self.before_read: Callable[[], object] = lambda: None
        self.before_render: Callable[[], object] = lambda: None
        self.languages: list[str] = []

    def read(self, data: bytes, options: Any) -> "LinesFormat":
        self.before_read()
        self.max_units = options.max_units
        self.languages += [options.source_language, options.target_language]
        self.units = [Unit((line,), f"line {index}") for index, line in enumerate(data.decode().splitlines())]
        return self

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        self.before_render()
        return "".join(f"{''.join(map(str, translations[index]))}\n" for index in range(len(self.units))).encode()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> LinesFormat:
    lines = LinesFormat()
    monkeypatch.setattr(document_job.FormatInfo, "read", lambda _, *arguments: lines.read(*arguments))
    return lines


@pytest.fixture
def threads() -> Iterator[DocumentThreads]:
    threads = DocumentThreads()
    yield threads
    threads.close()


def job_of(threads: DocumentThreads) -> DocumentJob:
    use = ModelUse("toy", "1")
    sentences: Any = SimpleNamespace(use=use, translate=Engine(), rows=64, languages=("en", "de"))
    return DocumentJob(query_from(DocumentConfig(format="text")), sentences, threads, chunk=4)


def responses_of(threads: DocumentThreads, data: bytes) -> list[Response]:
    async def main() -> list[Response]:
        job = job_of(threads)
        await job.open()
        return [response async for response in job.responses(data)]

    return asyncio.run(main())


def test_responses(lines: LinesFormat, threads: DocumentThreads) -> None:
    *responses, last = responses_of(threads, b"one\ntwo\n")
    chunks = [Response(chunk=b"ONE\n"), Response(chunk=b"TWO\n")]
    assert responses == [finding_to(NOTE), progress(0, 2), progress(2, 2), *chunks]
    summary = last.summary
    assert (summary.segments, summary.sentences, summary.total_bytes) == (2, 2, 8)
    assert (summary.model, summary.model_version) == ("toy", "1")
    assert min(summary.timing.preprocess_seconds, summary.timing.postprocess_seconds) > 0
    assert lines.languages == ["en", "de"]
    assert lines.max_units == document_job.MAX_SEGMENTS


def test_progress_while_reading_and_writing(
    lines: LinesFormat, threads: DocumentThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_job, "KEEPALIVE_SECONDS", 0.01)
    never = threading.Event()
    lines.before_read = lines.before_render = lambda: never.wait(0.1)
    responses = responses_of(threads, b"one\n")
    assert responses[0] == progress(0, 0)
    assert responses.count(progress(1, 1)) > 1


@pytest.mark.parametrize("stage", ["before_read", "before_render"])
def test_damaged_document_is_invalid_input(lines: LinesFormat, threads: DocumentThreads, stage: str) -> None:
    def fail() -> None:
        raise DamagedDocumentError("no such letter", "line 7")

    setattr(lines, stage, fail)
    with pytest.raises(InvalidInputError) as error:
        responses_of(threads, b"one\n")
    assert (error.value.field, error.value.problem) == ("document", "line 7: no such letter")


def test_too_many_segments(lines: LinesFormat, threads: DocumentThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_job, "MAX_SEGMENTS", 2)
    with pytest.raises(InvalidInputError, match="3 segments, at most 2 are allowed"):
        responses_of(threads, b"one\ntwo\nthree\n")


@in_loop
async def test_reading_ends_with_its_call(lines: LinesFormat, threads: DocumentThreads) -> None:
    began, ended = threading.Event(), threading.Event()

    def read() -> None:
        began.set()
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    lines.before_read = read
    job = job_of(threads)
    await job.open()
    task = asyncio.create_task(anext(job.responses(b"one\n")))  # type: ignore[arg-type]
    await asyncio.to_thread(began.wait)
    task.cancel()
    await asyncio.to_thread(ended.wait)


@in_loop
async def test_cancelled_document_is_not_read(lines: LinesFormat, threads: DocumentThreads) -> None:
    held, read = threading.Event(), []
    busy = [threads.run_heavy(1, held.wait) for _ in range(4)]
    lines.before_read = lambda: read.append(True)
    job = job_of(threads)
    await job.open()
    task = asyncio.create_task(anext(job.responses(b"one\n")))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    held.set()
    await asyncio.gather(*busy)
    await threads.run_heavy(1, int)
    assert not read
