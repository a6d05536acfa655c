"""triptych.v1.TranslationService."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor

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
    translation_wish_from,
)
from triptych_serving.servicers.job import Arrival, EndListener, Job
from triptych_serving.servicers.offload import Offload
from triptych_serving.servicers.status import Context
from triptych_serving.text import Pieces
from triptych_serving.translator import Output, Translator


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Translate and TranslateStream.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        pool: threads for long tokenizations.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor) -> None:
        self._registry = registry
        self._offload = Offload(pool)

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
            timing=timing_to(job.seconds()),
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
        arrival = Arrival.of(context)
        translator = self._registry().find(translation_wish_from(request))
        contents, options = contents_from(request), options_from(request.options)
        rows = await self._offload.run(sum(map(len, contents)), translator.prepare, contents, options)
        job = _Job(translator, rows, arrival, streams)
        job.submit()
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
            model=job.translator.name, model_version=str(job.translator.version), timing=timing_to(job.seconds())
        )
        yield translation_pb2.TranslateStreamResponse(summary=summary)

    async def _outputs(self, job: "_Job", rows: Sequence[Row]) -> list[Output]:
        started = time.monotonic()
        size = 4 * sum(len(row.tokens) for row in rows)  # characters, roughly
        outputs = await self._offload.run(size, job.translator.outputs, rows)
        job.postprocess = time.monotonic() - started
        return outputs


class _Job(Job[Row]):
    """One request in the decode engine."""

    def __init__(self, translator: Translator, rows: Sequence[Row], arrival: Arrival, streams: bool) -> None:
        self.translator = translator
        self.listener = _Listener(rows)
        super().__init__(translator.engine, Call(rows, self.listener, arrival.deadline, streams), arrival)

    def seconds(self) -> dict[str, float]:
        first = min(row.first_token for row in self.call.rows)
        return {**super().seconds(), "time_to_first_token": first - self._arrival.arrived}


class _Listener(EndListener):
    """Hands the engine's news to the event loop. A slow reader finds more text at once; the engine never waits for it."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = rows
        self._news = asyncio.Event()
        self._changed: dict[int, Row] = {}
        self._fresh: deque[Row] = deque()  # the engine appends, the event loop takes
        self._told = False

    def on_token(self, row: Row) -> None:
        self._fresh.append(row)
        if not self._told:  # one wake-up for many tokens: a flood of them would fill the event loop's pipe
            self._told = True
            self._post(self._take)

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
        self._changed.update({id(row): row for row in self._rows})
        self._news.set()
        super()._end()


def _piece(index: int, text: str) -> translation_pb2.TranslateStreamResponse:
    piece = translation_pb2.TranslationPiece(content_index=index, text=text)
    return translation_pb2.TranslateStreamResponse(piece=piece)


def _result(index: int, output: Output) -> translation_pb2.TranslateStreamResponse:
    result = translation_pb2.TranslationResult(content_index=index, translation=translation_to(output))
    return translation_pb2.TranslateStreamResponse(result=result)
