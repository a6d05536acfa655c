"""One document on its way: read, translated, written."""

import asyncio
from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from triptych_documents.errors import DocumentError
from triptych_documents.findings import Finding
from triptych_documents.format import Document, FormatInfo, ReadOptions, load_format
from triptych_documents.rules import TranslationRules
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Piece
from triptych_serving.errors import InvalidInputError
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.services.documents.asker import Asker
from triptych_serving.services.documents.codec import Order, invalid_document
from triptych_serving.services.documents.driver import Drive
from triptych_serving.services.documents.threads import DocumentThreads

MAX_SEGMENTS = 1_000_000
BEAT_SECONDS = 5.0  # between signs of life while a document is read or written
PROGRESS_SECONDS = 0.25  # the least time between two of them while it is translated


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    done: int
    segments: int  # 0: it is being read


@dataclass(frozen=True)
class Summary:
    """What it took."""

    use: ModelUse
    segments: int
    sentences: int
    total_bytes: int


Event = FormatInfo | Progress | Finding | bytes | Summary


class Run:
    """One document.

    Args:
        order: what is asked for.
        asker: asks the engine.
        threads: read and write it.
        chunk: the most bytes of one event.
    """

    def __init__(self, order: Order, asker: Asker, threads: DocumentThreads, chunk: int) -> None:
        self._order, self._asker, self._threads, self._chunk = order, asker, threads, chunk
        self._work: UnitTranslator | None = None
        self._translations: dict[int, Sequence[Piece]] = {}
        self._sentences = 0

    async def open(self, open_work: Callable[[TranslationRules], UnitTranslator]) -> None:
        """Before anything else: what its segments are cut and checked by.

        Raises:
            InvalidInputError: a glossary, or another rule, cannot be used.
        """
        self._work = await self._threads.run_light(_open, open_work, self._order.rules(self._asker.languages))

    async def events(self, data: bytes) -> AsyncGenerator[Event]:
        """All that there is to say of this document.

        Raises:
            ServingError: it cannot be read, translated or written.
        """
        use, began = self._asker.use, monotonic()
        reading = self._threads.run_heavy(_read, data, self._order.kind, self._order.read_options(self._asker.languages))
        async for beat in _beats(reading, Progress(0, 0)):
            yield beat
        document = await reading
        del data, reading  # as large as documents are
        use.stages["preprocess"] = began, monotonic()
        known = len(document.findings)
        for finding in document.findings:
            yield finding
        async with aclosing(self._translate(document)) as news:
            async for one in news:
                yield one
        total, began = len(document.units), monotonic()
        writing = self._threads.run_heavy(_render, document, self._translations)
        async for beat in _beats(writing, Progress(total, total)):
            yield beat
        content = await writing
        for finding in document.findings[known:]:
            yield finding
        use.stages["postprocess"] = began, monotonic()
        for start in range(0, len(content), self._chunk):
            yield content[start : start + self._chunk]
        yield Summary(use, total, self._sentences, len(content))

    async def _translate(self, document: Document) -> AsyncGenerator[Progress | Finding]:
        assert self._work is not None, "it is opened first"
        total, told = len(document.units), monotonic()
        yield Progress(0, total)
        drive = Drive(self._work, document.units, self._asker.answers, self._threads.run_light, self._asker.rows)
        async with aclosing(drive.steps()) as steps:
            async for done in steps:
                for finding in self._take(done):
                    yield finding
                if monotonic() - told >= PROGRESS_SECONDS or (done and len(self._translations) == total):
                    told = monotonic()
                    yield Progress(len(self._translations), total)

    def _take(self, done: Sequence[TranslatedUnit]) -> Iterator[Finding]:
        for one in done:
            assert isinstance(one.key, int), "a segment's key is its place in the document"
            self._translations[one.key] = one.pieces
            self._sentences += len(one.pairs)
            yield from one.findings


def _open(open_work: Callable[[TranslationRules], UnitTranslator], rules: TranslationRules) -> UnitTranslator:
    with _as_invalid_input():
        return open_work(rules)


def _read(data: bytes, kind: FormatInfo, options: ReadOptions) -> Document:
    with _as_invalid_input():
        document = load_format(kind).read(data, replace(options, max_units=MAX_SEGMENTS))
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
        raise invalid_document(error) from error


async def _beats(work: "Future[Document] | Future[bytes]", beat: Progress) -> AsyncGenerator[Progress]:
    """Signs of life until the work is done."""
    try:
        while not (await asyncio.wait((work,), timeout=BEAT_SECONDS))[0]:
            yield beat
    finally:
        work.cancel()  # where it has not begun; what is done stays done
