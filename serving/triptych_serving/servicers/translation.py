"""triptych.v1.TranslationService."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_serving.errors import UnsupportedError
from triptych_serving.registry import Registry
from triptych_serving.row import Call, Row
from triptych_serving.servicers.codec import (
    TranslateRequest,
    contents_from,
    options_from,
    timing_to,
    translation_to,
    wish_from,
)
from triptych_serving.servicers.status import Context
from triptych_serving.text import Pieces
from triptych_serving.translator import Output, Translator

Result = TypeVar("Result")

INLINE_CHARACTERS = 2_000  # shorter work is done in the event loop: a hop to a thread costs more than it takes


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Translate and TranslateStream.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        pool: threads for long tokenizations.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor) -> None:
        self._registry = registry
        self._pool = pool

    async def Translate(self, request: translation_pb2.TranslateRequest, context: Context) -> translation_pb2.TranslateResponse:
        job = await self._begin(request, context, streams=False)
        try:
            await job.listener.ended.wait()
            job.raise_error()
            outputs = await self._outputs(job, job.call.rows)
        finally:
            job.abandon()
        return translation_pb2.TranslateResponse(
            translations=[translation_to(output) for output in outputs],
            model=job.translator.name,
            model_version=str(job.translator.version),
            timing=job.timing(),
        )

    async def TranslateStream(
        self, request: translation_pb2.TranslateStreamRequest, context: Context
    ) -> AsyncIterator[translation_pb2.TranslateStreamResponse]:
        job = await self._begin(request, context, streams=True)
        try:
            async for event in self._events(job):
                yield event
        finally:
            job.abandon()

    async def ScoreTranslations(
        self, request: translation_pb2.ScoreTranslationsRequest, context: Context
    ) -> translation_pb2.ScoreTranslationsResponse:
        raise UnsupportedError("ScoreTranslations is not available in this release")

    async def _begin(self, request: TranslateRequest, context: Context, streams: bool) -> "_Job":
        """Validate, tokenize and queue."""
        arrived = time.monotonic()
        translator = self._registry().find(wish_from(request))
        contents, options = contents_from(request), options_from(request.options)
        size = sum(map(len, contents))
        rows = await self._run(size, translator.prepare, contents, options)
        left = context.time_remaining()
        deadline = None if left is None else time.monotonic() + left
        job = _Job(translator, rows, arrived, deadline, streams)
        translator.engine.submit(job.call)
        return job

    async def _events(self, job: "_Job") -> AsyncIterator[translation_pb2.TranslateStreamResponse]:
        pieces = [Pieces() for _ in job.call.rows]
        pending = {id(row): index for index, row in enumerate(job.call.rows)}
        while pending:
            for row in await job.listener.changed_rows():
                job.raise_error()
                index = pending.get(id(row))
                if index is None:
                    continue
                output = job.translator.outputs([row])[0] if row.finish is not None else None
                text = output.text if output else job.translator.codec.decode_stable(row.tokens)
                if piece := pieces[index].advance(text):
                    yield _piece(index, piece)
                if output:
                    del pending[id(row)]
                    yield _result(index, output)
            job.raise_error()
        await job.listener.ended.wait()  # the timing of the last rows follows their text
        summary = translation_pb2.StreamSummary(
            model=job.translator.name, model_version=str(job.translator.version), timing=job.timing()
        )
        yield translation_pb2.TranslateStreamResponse(summary=summary)

    async def _outputs(self, job: "_Job", rows: Sequence[Row]) -> list[Output]:
        started = time.monotonic()
        size = 4 * sum(len(row.tokens) for row in rows)  # characters, roughly
        outputs = await self._run(size, job.translator.outputs, rows)
        job.postprocess = time.monotonic() - started
        return outputs

    async def _run(self, size: int, function: Callable[..., Result], *arguments: Any) -> Result:
        if size <= INLINE_CHARACTERS:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


class _Job:
    """One request in the engine."""

    def __init__(
        self, translator: Translator, rows: Sequence[Row], arrived: float, deadline: float | None, streams: bool
    ) -> None:
        self.translator = translator
        self.listener = _Listener(asyncio.get_running_loop())
        self.call = Call(rows, self.listener, deadline, streams)
        self.listener.rows = self.call.rows
        self.arrived = arrived
        self.prepared = time.monotonic()
        self.postprocess = 0.0

    def abandon(self) -> None:
        """The handler is leaving: whatever still runs for it shall stop."""
        if not self.call.over:
            self.translator.engine.cancel(self.call)

    def raise_error(self) -> None:
        if self.call.error is not None:
            raise self.call.error

    def timing(self) -> Any:
        rows = self.call.rows
        started = [row.started for row in rows]
        return timing_to(
            {
                "queue": max(started) - self.call.arrived,
                "preprocess": self.prepared - self.arrived,
                "inference": max(row.ended for row in rows) - min(started),
                "postprocess": self.postprocess,
                "time_to_first_token": min(row.first_token for row in rows) - self.arrived,
            }
        )


class _Listener:
    """Hands the engine's news to the event loop. A slow reader finds more text at once; the engine never waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended = asyncio.Event()
        self.rows: Sequence[Row] = ()
        self._loop = loop
        self._news = asyncio.Event()
        self._changed: dict[int, Row] = {}
        self._fresh: deque[Row] = deque()  # the engine appends, the event loop takes
        self._told = False

    def on_token(self, row: Row) -> None:
        self._fresh.append(row)
        if not self._told:  # one wake-up for many tokens: a flood of them would fill the event loop's pipe
            self._told = True
            self._post(self._take)

    def on_end(self) -> None:
        self._post(self._end)

    async def changed_rows(self) -> list[Row]:
        """Rows with more tokens than at the last call; waits for one."""
        await self._news.wait()
        self._news.clear()
        rows = list(self._changed.values())
        self._changed.clear()
        return rows

    def _take(self) -> None:
        self._told = False  # first: what is appended from here on either is taken below or wakes the loop again
        while self._fresh:
            row = self._fresh.popleft()
            self._changed[id(row)] = row
        self._news.set()

    def _end(self) -> None:
        self._changed.update({id(row): row for row in self.rows})
        self._news.set()
        self.ended.set()

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: the server is gone, and with it whoever asked
            return


def _piece(index: int, text: str) -> translation_pb2.TranslateStreamResponse:
    piece = translation_pb2.TranslationPiece(content_index=index, text=text)
    return translation_pb2.TranslateStreamResponse(piece=piece)


def _result(index: int, output: Output) -> translation_pb2.TranslateStreamResponse:
    result = translation_pb2.TranslationResult(content_index=index, translation=translation_to(output))
    return translation_pb2.TranslateStreamResponse(result=result)
