"""Translation of one document: batches in the engine, events, errors, and cancellation."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.v1.translation_pb2 import DocumentConfig
from triptych_documents.driver import DocumentDriver
from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.interruption import checkpoint
from triptych_documents.sentences import SentenceRequest, SentenceResult, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit
from triptych_documents.unit import Piece, Unit
from triptych_serving.errors import InvalidInputError, UnavailableError
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.services.documents import job as document_job
from triptych_serving.services.documents.calls import DocumentThreads
from triptych_serving.services.documents.codec import DocumentEvent, DocumentProgress, DocumentSummary, query_from
from triptych_serving.services.documents.job import BATCH_ROWS, STEP_UNITS, DocumentJob, drive

UNITS = [Unit((f"text {index}",), f"line {index}") for index in range(200)]
ROWS = 3 * BATCH_ROWS
NOTE = Finding(FindingKind.FORMAT, Severity.NOTE, "line 1", "odd")
Translate = Callable[[Sequence[SentenceRequest]], Awaitable[Sequence[SentenceResult]]]


class EchoTranslator:
    """Request the text of each unit, and with `aligned` once more with an alignment."""

    def __init__(self, aligned: bool = False) -> None:
        self._aligned = aligned
        self._units: dict[str, tuple[Hashable, Unit]] = {}
        self._done: list[TranslatedUnit] = []

    @property
    def waiting(self) -> int:
        return len(self._units)

    def add(self, key: Hashable, unit: Unit) -> list[SentenceRequest]:
        self._units[unit.text] = key, unit
        return [SentenceRequest(unit.text)]

    def answer(self, request: SentenceRequest, result: SentenceResult) -> list[SentenceRequest]:
        if self._aligned and not request.aligned:
            return [SentenceRequest(request.text, aligned=True)]
        key, unit = self._units.pop(request.text)
        text = result.text if isinstance(result, SentenceTranslation) else request.text
        self._done.append(TranslatedUnit(key, unit, (text,), (), ()))
        return []

    def done(self) -> Sequence[TranslatedUnit]:
        done, self._done = self._done, []
        return done


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


def steps_of(translator: Any, translate: Translate, units: Sequence[Unit] = UNITS) -> Any:
    driver = DocumentDriver(translator, enumerate(units), window=ROWS, step_units=STEP_UNITS)
    return drive(driver, translate, inline, ROWS)


def run(translator: Any, translate: Translate, units: Sequence[Unit] = UNITS) -> list[Sequence[TranslatedUnit]]:
    async def main() -> list[Sequence[TranslatedUnit]]:
        return [finished async for finished in steps_of(translator, translate, units)]

    return asyncio.run(main())


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("count", [0, 1, BATCH_ROWS, len(UNITS)])
def test_every_unit_is_translated_once_in_bounded_batches(aligned: bool, count: int) -> None:
    engine = Engine()
    finished = [unit for step in run(EchoTranslator(aligned), engine, UNITS[:count]) for unit in step]
    assert sorted(unit.key for unit in finished) == list(range(count))  # type: ignore[type-var]
    assert all(unit.pieces == (unit.unit.text.upper(),) for unit in finished)
    assert engine.most <= ROWS
    assert all(len(batch) <= BATCH_ROWS for batch in engine.batches)
    assert all(len({request.aligned for request in batch}) == 1 for batch in engine.batches)


def test_errors_end_the_document_and_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(requests: Sequence[SentenceRequest]) -> Sequence[SentenceResult]:
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError, match="gone"):
        run(EchoTranslator(), fail)
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_closing_cancels_requests_in_flight() -> None:
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

    async def main() -> None:
        steps = steps_of(EchoTranslator(), hang)
        while not await anext(steps):
            pass
        assert engine.rows > 0
        await steps.aclose()
        assert engine.rows == 0

    asyncio.run(main())


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
    monkeypatch.setattr(document_job, "load_format", lambda kind: lines)
    return lines


@pytest.fixture
def threads() -> Iterator[DocumentThreads]:
    threads = DocumentThreads()
    yield threads
    threads.close()


def job_of(threads: DocumentThreads) -> DocumentJob:
    use = ModelUse("toy", "1")
    sentences: Any = SimpleNamespace(use=use, translate=Engine(), rows=64, languages=("en", "de"))
    return DocumentJob(query_from(DocumentConfig(format="text")), sentences, threads.run_heavy, threads.run_light, chunk=4)


def events_of(threads: DocumentThreads, data: bytes, open_: Any = lambda rules: EchoTranslator()) -> list[DocumentEvent]:
    async def main() -> list[DocumentEvent]:
        job = job_of(threads)
        await job.open(open_)
        return [event async for event in job.events(data)]

    return asyncio.run(main())


def test_events(lines: LinesFormat, threads: DocumentThreads) -> None:
    *events, summary = events_of(threads, b"one\ntwo\n")
    assert events == [NOTE, DocumentProgress(0, 2), DocumentProgress(2, 2), b"ONE\n", b"TWO\n"]
    assert isinstance(summary, DocumentSummary)
    assert (summary.segments, summary.sentences, summary.total_bytes) == (2, 0, 8)
    assert {"preprocess", "postprocess"} <= summary.use.stages.keys()
    assert lines.languages == ["en", "de"]
    assert lines.max_units == document_job.MAX_SEGMENTS


def test_progress_while_reading_and_writing(
    lines: LinesFormat, threads: DocumentThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_job, "KEEPALIVE_SECONDS", 0.01)
    never = threading.Event()
    lines.before_read = lines.before_render = lambda: never.wait(0.1)
    events = events_of(threads, b"one\n")
    assert events[0] == DocumentProgress(0, 0)
    assert events.count(DocumentProgress(1, 1)) > 1


@pytest.mark.parametrize("stage", ["before_read", "before_render"])
def test_damaged_document_is_invalid_input(lines: LinesFormat, threads: DocumentThreads, stage: str) -> None:
    def fail() -> None:
        raise DamagedDocumentError("no such letter", "line 7")

    setattr(lines, stage, fail)
    with pytest.raises(InvalidInputError) as error:
        events_of(threads, b"one\n")
    assert (error.value.field, error.value.problem) == ("document", "line 7: no such letter")


def test_invalid_rules_and_too_many_segments(
    lines: LinesFormat, threads: DocumentThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_(rules: Any) -> Any:
        raise OptionError("glossary", "odd")

    with pytest.raises(InvalidInputError, match=r"config\.glossary: odd"):
        events_of(threads, b"one\n", open_)
    monkeypatch.setattr(document_job, "MAX_SEGMENTS", 2)
    with pytest.raises(InvalidInputError, match="3 segments, at most 2 are allowed"):
        events_of(threads, b"one\ntwo\nthree\n")


def test_reading_ends_with_its_call(lines: LinesFormat, threads: DocumentThreads) -> None:
    began, ended = threading.Event(), threading.Event()

    def read() -> None:
        began.set()
        try:
            while True:
                checkpoint()
        finally:
            ended.set()

    async def main() -> None:
        lines.before_read = read
        job = job_of(threads)
        await job.open(lambda rules: EchoTranslator())  # type: ignore[arg-type, return-value]
        task = asyncio.create_task(anext(job.events(b"one\n")))  # type: ignore[arg-type]
        await asyncio.to_thread(began.wait)
        task.cancel()
        await asyncio.to_thread(ended.wait)

    asyncio.run(main())


def test_cancelled_document_is_not_read(lines: LinesFormat, threads: DocumentThreads) -> None:
    held, read = threading.Event(), []

    async def main() -> None:
        busy = [threads.run_heavy(1, held.wait) for _ in range(4)]
        lines.before_read = lambda: read.append(True)
        job = job_of(threads)
        await job.open(lambda rules: EchoTranslator())  # type: ignore[arg-type, return-value]
        task = asyncio.create_task(anext(job.events(b"one\n")))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        held.set()
        await asyncio.gather(*busy)
        await threads.run_heavy(1, int)

    asyncio.run(main())
    assert not read
