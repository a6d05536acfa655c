"""One document on its way: read, translated, written."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.v1.translation_pb2 import DocumentConfig
from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_documents.unit import Piece, Unit
from triptych_serving.errors import InvalidInputError
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.services.documents import run as documentrun
from triptych_serving.services.documents.codec import order_from
from triptych_serving.services.documents.run import Event, Progress, Run, Summary
from triptych_serving.services.documents.threads import DocumentThreads

from .test_driver import EchoWork

ODD = Finding(FindingKind.FORMAT, Severity.NOTE, "line 1", "odd")


class Lines:
    """A format, and its document: every line is a unit."""

    name = "lines"
    findings = (ODD,)

    def __init__(self) -> None:
        self.before_read: Callable[[], object] = lambda: None
        self.before_render: Callable[[], object] = lambda: None
        self.languages: list[str] = []

    def read(self, data: bytes, options: Any) -> "Lines":
        self.before_read()
        self.max_units = options.max_units
        self.languages += [options.source_language, options.target_language]
        self.units = [Unit((line,), f"line {index}") for index, line in enumerate(data.decode().splitlines())]
        return self

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        self.before_render()
        return "".join(f"{''.join(map(str, translations[index]))}\n" for index in range(len(self.units))).encode()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    monkeypatch.setattr(documentrun, "load_format", lambda kind: lines)
    return lines


@pytest.fixture
def threads() -> Iterator[DocumentThreads]:
    threads = DocumentThreads()
    yield threads
    threads.close()


async def shout(asks: Sequence[SentenceRequest]) -> list[SentenceTranslation]:
    return [SentenceTranslation(ask.text.upper()) for ask in asks]


def run_of(threads: DocumentThreads) -> Run:
    asker: Any = SimpleNamespace(use=ModelUse("toy", "1"), answers=shout, rows=64, languages=("en", "de"))
    return Run(order_from(DocumentConfig(format="text")), asker, threads, chunk=4)


def events_of(threads: DocumentThreads, data: bytes, open_work: Any = lambda rules: EchoWork()) -> list[Event]:
    async def main() -> list[Event]:
        run = run_of(threads)
        await run.open(open_work)
        return [event async for event in run.events(data)]

    return asyncio.run(main())


def test_all_that_there_is_to_say(lines: Lines, threads: DocumentThreads) -> None:
    *news, summary = events_of(threads, b"one\ntwo\n")
    assert news == [ODD, Progress(0, 2), Progress(2, 2), b"ONE\n", b"TWO\n"]
    assert isinstance(summary, Summary)
    assert (summary.segments, summary.sentences, summary.total_bytes) == (2, 0, 8)
    assert {"preprocess", "postprocess"} <= summary.use.stages.keys()
    assert lines.languages == ["en", "de"]
    assert lines.max_units == documentrun.MAX_SEGMENTS


def test_who_reads_and_writes_for_long_gives_signs_of_life(
    lines: Lines, threads: DocumentThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documentrun, "BEAT_SECONDS", 0.01)
    never = threading.Event()
    lines.before_read = lines.before_render = lambda: never.wait(0.1)
    events = events_of(threads, b"one\n")
    assert events[0] == Progress(0, 0)
    assert events.count(Progress(1, 1)) > 1


@pytest.mark.parametrize("place", ["before_read", "before_render"])
def test_what_is_wrong_with_the_document_is_the_callers_fault(lines: Lines, threads: DocumentThreads, place: str) -> None:
    def fail() -> None:
        raise DamagedDocumentError("no such letter", "line 7")

    setattr(lines, place, fail)
    with pytest.raises(InvalidInputError) as error:
        events_of(threads, b"one\n")
    assert (error.value.field, error.value.problem) == ("document", "line 7: no such letter")


def test_rules_that_cannot_be_used(threads: DocumentThreads) -> None:
    def open_work(rules: Any) -> Any:
        raise OptionError("glossary", "odd")

    with pytest.raises(InvalidInputError, match=r"config\.glossary: odd"):
        events_of(threads, b"one\n", open_work)


def test_too_many_segments(lines: Lines, threads: DocumentThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentrun, "MAX_SEGMENTS", 2)
    with pytest.raises(InvalidInputError, match="3 segments, at most 2 are allowed"):
        events_of(threads, b"one\ntwo\nthree\n")


def test_a_document_that_nobody_waits_for_is_not_read(lines: Lines, threads: DocumentThreads) -> None:
    """Its turn has not come."""
    held, read = threading.Event(), []

    async def main() -> None:
        busy = [threads.run_heavy(held.wait) for _ in range(4)]
        lines.before_read = lambda: read.append(True)
        run = run_of(threads)
        await run.open(lambda rules: EchoWork())  # type: ignore[arg-type, return-value]
        task = asyncio.create_task(anext(run.events(b"one\n")))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        held.set()
        await asyncio.gather(*busy)
        await threads.run_heavy(int)

    asyncio.run(main())
    assert not read
