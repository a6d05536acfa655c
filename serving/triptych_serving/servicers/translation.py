"""triptych.v1.TranslationService."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_serving.assembling import GrowingText, Output, Prepared
from triptych_serving.registry import Registry
from triptych_serving.row import Call, Item, Row
from triptych_serving.servicers.codec import (
    TranslateRequest,
    contents_from,
    options_from,
    pairs_from,
    score_to,
    timing_to,
    translation_to,
    translation_wish_from,
)
from triptych_serving.servicers.job import Arrival, EndListener, Job
from triptych_serving.servicers.offload import Offload
from triptych_serving.servicers.status import Context
from triptych_serving.translator import Translator


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Translate, TranslateStream and ScoreTranslations.

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
            started = time.monotonic()
            outputs = await self._outputs(job, job.prepared)
            job.postprocess = time.monotonic() - started
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
        arrival = Arrival.of(context)
        translator = self._registry().find(translation_wish_from(request))
        # In a thread: the first call loads a graph.
        languages = request.source_language_code, request.target_language_code
        work = await self._offload.run_in_thread(translator.prepare_scores, pairs_from(request), *languages)
        listener = EndListener()
        call = Call(work.items, listener, arrival.deadline, field=work.field)
        job: Job[Item] = Job(translator.scorer.engine, call, arrival)
        job.submit()
        try:
            await listener.ended.wait()
            job.raise_error()
        finally:
            job.abandon()
        return translation_pb2.ScoreTranslationsResponse(
            scores=[score_to(score) for score in work.read()],
            model=translator.name,
            model_version=str(translator.version),
            timing=timing_to(job.seconds()),
        )

    async def _begin(self, request: TranslateRequest, context: Context, streams: bool) -> "_Job":
        """Validate, tokenize and queue."""
        arrival = Arrival.of(context)
        translator = self._registry().find(translation_wish_from(request))
        contents, options = contents_from(request), options_from(request.options)
        languages = request.source_language_code, request.target_language_code
        prepared = await self._offload.run(sum(map(len, contents)), translator.tokenize, contents, options, *languages)
        if not translator.is_ready_for(prepared):
            await self._offload.run_in_thread(translator.get_ready_for, prepared)
        job = _Job(translator, prepared, arrival, streams)
        job.submit()
        return job

    async def _events(self, job: "_Job") -> AsyncIterator[translation_pb2.TranslateStreamResponse]:
        growing = [GrowingText(text, job.translator.codec) for text in job.prepared.texts]
        owners = {id(row): index for index, text in enumerate(job.prepared.texts) for row in text.rows}
        left = len(growing)
        while left:
            for row in await job.listener.changed_rows():
                job.raise_error()
                index = owners[id(row)]
                text = growing[index]
                if text.is_done:
                    continue
                if piece := text.advance(row):
                    yield _piece(index, piece)
                if text.is_done:
                    left -= 1
                    [output] = await self._outputs(job, Prepared((text.text,)))
                    yield _result(index, output)
            job.raise_error()
        await job.listener.ended.wait()  # the timing of the last rows follows their text
        summary = translation_pb2.StreamSummary(
            model=job.translator.name, model_version=str(job.translator.version), timing=timing_to(job.seconds())
        )
        yield translation_pb2.TranslateStreamResponse(summary=summary)

    async def _outputs(self, job: "_Job", prepared: Prepared) -> list[Output]:
        size = 4 * sum(len(hypothesis.tokens) for row in prepared.rows for hypothesis in row.hypotheses)  # characters, roughly
        return await self._offload.run(size, job.translator.outputs, prepared)


class _Job(Job[Row]):
    """One request in the decode engine."""

    def __init__(self, translator: Translator, prepared: Prepared, arrival: Arrival, streams: bool) -> None:
        self.translator = translator
        self.prepared = prepared
        rows = prepared.rows
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
