"""Translation of one document: batches in the engine, responses, errors, and cancellation."""

import asyncio
import gc
import io
import pickle
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from triptych.v1.translation_pb2 import DocumentConfig
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import FormatInfo, ReadOptions, find_format
from triptych_documents.interruption import checkpoint
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceResult, SentenceTranslation
from triptych_documents.unit import Piece, Unit
from triptych_serving.errors import EngineError, InvalidInputError, UnavailableError
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.services.documents import job as document_job
from triptych_serving.services.documents import work as document_work
from triptych_serving.services.documents import workers as document_workers
from triptych_serving.services.documents.codec import Response, finding_to, progress, query_from
from triptych_serving.services.documents.job import DocumentJob, drive
from triptych_serving.services.documents.work import BATCH_ROWS, SIZE, DocumentWork, Step, framed, unpacked_bytes
from triptych_serving.services.documents.workers import DocumentWorkers

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


def work_on(units: Sequence[Unit]) -> Any:
    """The work on a document that has been read."""
    kind: Any = SimpleNamespace(read=lambda data, options: SimpleNamespace(units=units, findings=[]))
    work = DocumentWork(kind, ReadOptions(), TranslationRules(source_language="en"), ROWS)
    work.read(b"")
    return work


def steps_of(translate: Translate, work: Any) -> Any:
    async def advance(*arguments: Any) -> Step:
        step: Step = work.advance(*arguments)
        return step

    return drive(advance, translate, ROWS)


@pytest.mark.parametrize("count", [0, 1, BATCH_ROWS, len(UNITS)])
@in_loop
async def test_every_unit_is_translated_once_in_bounded_batches(count: int) -> None:
    engine, work = Engine(), work_on(UNITS[:count])
    assert sum([step.finished async for step in steps_of(engine, work)]) == count
    assert work._translations == [{index: (UNITS[index].text.upper(),) for index in range(count)}]
    assert engine.most <= ROWS
    assert all(len(batch) <= BATCH_ROWS for batch in engine.batches)


@in_loop
async def test_errors_end_the_document_and_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(requests: Sequence[SentenceRequest]) -> Sequence[SentenceResult]:
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError, match="gone"):
        await anext(step async for step in steps_of(fail, work_on(UNITS)) if step.finished)
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

    steps = steps_of(hang, work_on(UNITS))
    while not (await anext(steps)).finished:
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
    monkeypatch.setattr(FormatInfo, "read", lambda _, *arguments: lines.read(*arguments))
    return lines


@pytest.fixture
def workers() -> Iterator[DocumentWorkers]:
    workers = DocumentWorkers()
    yield workers
    workers.close()


def job_of(workers: DocumentWorkers) -> DocumentJob:
    use = ModelUse("toy", "1")
    sentences: Any = SimpleNamespace(use=use, translate=Engine(), rows=64, languages=("en", "de"))
    return DocumentJob(query_from(DocumentConfig(format="text")), sentences, workers, chunk=4)


def responses_of(workers: DocumentWorkers, data: bytes) -> list[Response]:
    async def main() -> list[Response]:
        job = job_of(workers)
        return [response async for response in job.responses(data)]

    return asyncio.run(main())


def test_responses(lines: LinesFormat, workers: DocumentWorkers) -> None:
    *responses, last = responses_of(workers, b"one\ntwo\n")
    chunks = [Response(chunk=b"ONE\n"), Response(chunk=b"TWO\n")]
    assert responses == [Response(finding=finding_to(NOTE)), progress(0, 2), progress(2, 2), *chunks]
    summary = last.summary
    assert (summary.segments, summary.sentences, summary.total_bytes) == (2, 2, 8)
    assert (summary.model, summary.model_version) == ("toy", "1")
    assert min(summary.timing.preprocess_seconds, summary.timing.postprocess_seconds) > 0
    assert lines.languages == ["en", "de"]
    assert lines.max_units == document_work.MAX_SEGMENTS


def test_progress_while_reading_and_writing(
    lines: LinesFormat, workers: DocumentWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_job, "KEEPALIVE_SECONDS", 0.01)
    never = threading.Event()
    lines.before_read = lines.before_render = lambda: never.wait(0.1)
    responses = responses_of(workers, b"one\n")
    assert responses[0] == progress(0, 0)
    assert responses.count(progress(1, 1)) > 1


@pytest.mark.parametrize("stage", ["before_read", "before_render"])
def test_damaged_document_is_invalid_input(lines: LinesFormat, workers: DocumentWorkers, stage: str) -> None:
    def fail() -> None:
        raise DamagedDocumentError("no such letter", "line 7")

    setattr(lines, stage, fail)
    with pytest.raises(InvalidInputError, match=r"^document: line 7: no such letter$"):
        responses_of(workers, b"one\n")


def test_too_many_segments(lines: LinesFormat, workers: DocumentWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_work, "MAX_SEGMENTS", 2)
    with pytest.raises(InvalidInputError, match="3 segments, at most 2 are allowed"):
        responses_of(workers, b"one\ntwo\nthree\n")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[DocumentWorkers]:
    """Workers for documents that are all taken for large."""
    monkeypatch.setattr(document_workers, "SMALL_BYTES", 0)
    yield (workers := DocumentWorkers())
    workers.close()


def test_a_large_document_has_a_process(processes: DocumentWorkers, workers: DocumentWorkers) -> None:
    text = b"one\n\ntwo\n\n\xe2\x80\xa6 three %s\n"
    found = responses_of(processes, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_workers, "SMALL_BYTES", len(text))
        alike = responses_of(workers, text)
    for summary in (found[-1].summary, alike[-1].summary):
        summary.ClearField("timing")
    assert found == alike
    assert b"".join(one.chunk for one in found) == b"ONE\n\nTWO\n\n\xe2\x80\xa6 THREE %s\n"


@pytest.mark.parametrize(
    ("reads", "field", "problem"),
    [
        ({"encoding": "ascii"}, "document", "byte 0xE4 at 0 is not valid ascii"),
        ({"encoding": "nonsense"}, "config.read_options.encoding", "nonsense"),
    ],
)
def test_errors_of_a_process(processes: DocumentWorkers, reads: dict[str, str], field: str, problem: str) -> None:
    async def read() -> None:
        work = DocumentWork(find_format("text"), ReadOptions(**reads), TranslationRules(), ROWS)
        async with processes.worker(b"\xe4 one", work) as worker:
            await worker.call(DocumentWork.read, b"\xe4 one")

    with pytest.raises(InvalidInputError, match=f"^{field}: .*{problem}"):
        asyncio.run(read())


def test_a_process_that_is_killed_or_fails_ends_its_document_alone(processes: DocumentWorkers) -> None:
    async def call(kills: bool) -> None:
        work = DocumentWork(find_format("text"), ReadOptions(), TranslationRules(), ROWS)
        async with processes.worker(b"one", work) as worker:
            if kills:
                worker._process.send_signal(signal.SIGKILL)  # type: ignore[attr-defined]
            await worker.call(DocumentWork.advance, [], 1)  # before it is read

    with pytest.raises(RuntimeError, match=r"in the process of a document: Traceback[\s\S]*no attribute '_driver'"):
        asyncio.run(call(kills=False))
    with pytest.raises(EngineError, match="the process of the document was ended by signal 9"):
        asyncio.run(call(kills=True))


def test_a_document_that_needs_too_much_memory_is_rejected() -> None:
    """The limit of a process stays, so that this one must not be it."""
    text = b"<p>a</p>" * 200_000
    work = DocumentWork(find_format("html"), ReadOptions(), TranslationRules(), ROWS)
    calls = b"".join(part for value in (work, ("read", (text,))) for part in framed(value))
    code = f"import sys; from {DocumentWork.__module__} import serve; serve(sys.stdin.buffer, sys.stdout.buffer, 150_000_000)"
    done = subprocess.run([sys.executable, "-c", code], input=calls, capture_output=True, check=True)
    assert pickle.loads(done.stdout[SIZE.size :]) == ("document", "it needs more than 150,000,000 bytes of memory; split it")


@in_loop
async def test_the_process_of_a_call_that_ends_is_ended(processes: DocumentWorkers) -> None:
    others, responses = psutil.Process().children(), job_of(processes).responses(b"one")
    assert (await anext(responses)).progress == progress(0, 1).progress
    [child] = [each for each in psutil.Process().children() if each not in others]
    await responses.aclose()
    assert not child.is_running()


@in_loop
async def test_a_call_whose_result_fills_the_buffer_ends(processes: DocumentWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_workers, "BUFFER_BYTES", 1024)
    work = DocumentWork(find_format("text"), ReadOptions(), TranslationRules(), ROWS)
    data = b"one " * 100_000
    async with asyncio.timeout(60), processes.worker(data, work) as worker:
        await worker.call(DocumentWork.read, data)
        await worker.send(framed(("render", ())))  # type: ignore[attr-defined]
        while not worker._output._paused:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)


def test_a_process_that_cannot_be_started(processes: DocumentWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(EngineError, match="the process of the document cannot be started: No such file or directory"):
        responses_of(processes, b"one")


def test_a_process_takes_no_modules_of_the_current_folder(
    processes: DocumentWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zipfile.py").write_text("raise AssertionError")
    monkeypatch.chdir(tmp_path)
    assert responses_of(processes, b"one\n")[-1].summary.segments == 1


@in_loop
async def test_a_large_archive_is_not_listed(processes: DocumentWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    def list_members(data: bytes) -> int:
        raise AssertionError

    monkeypatch.setattr(document_workers, "unpacked_bytes", list_members)
    async with aclosing(job_of(processes).responses(b"PK")) as responses:
        assert (await anext(responses)).progress.segments == 1


def test_the_size_of_an_archive_is_that_of_its_members() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("document.xml", b" " * 100_000)
    assert unpacked_bytes(file.getvalue()) == unpacked_bytes(b"#!/bin/sh\n" + file.getvalue()) == 100_000
    assert unpacked_bytes(b"PK, which is no archive") == 23


@in_loop
async def test_reading_ends_with_its_call(lines: LinesFormat, workers: DocumentWorkers) -> None:
    began, ended = threading.Event(), threading.Event()

    def read() -> None:
        began.set()
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    lines.before_read = read
    job = job_of(workers)
    task = asyncio.create_task(anext(job.responses(b"one\n")))  # type: ignore[arg-type]
    await asyncio.to_thread(began.wait)
    task.cancel()
    await asyncio.to_thread(ended.wait)


@in_loop
async def test_cancelled_document_is_not_read(lines: LinesFormat, workers: DocumentWorkers) -> None:
    held, read = threading.Event(), []
    busy = workers._heavy.submit(held.wait)
    lines.before_read = lambda: read.append(True)
    job = job_of(workers)
    task = asyncio.create_task(anext(job.responses(b"one\n")))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    held.set()
    await asyncio.wrap_future(busy)
    await asyncio.wrap_future(workers._heavy.submit(int))
    assert not read
