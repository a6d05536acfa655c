"""How translations are asked of the engine, whatever protocol they came in."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from triptych_serving.models.translation.options import DEFAULTS, DecodingOptions, may_sample, option_values
from triptych_serving.models.translation.postprocess import GrowingText, PreparedRequest, Translation
from triptych_serving.models.translation.scoring import TranslationScore
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import CachedCalls, RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse, UseModel
from triptych_serving.rpc.engine_call import Arrival, EndListener, EngineCall
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.scheduling.request import Call, Item, Row


@dataclass(frozen=True)
class TranslationQuery:
    """What is to be translated, by which model, and how."""

    selector: ModelSelector
    contents: Sequence[str]
    options: DecodingOptions = DEFAULTS


@dataclass(frozen=True)
class TextPiece:
    """More of one text's translation."""

    index: int
    text: str


@dataclass(frozen=True)
class TranslationResult:
    """All of one text's translation."""

    index: int
    output: Translation


class TranslationCalls:
    """Shared by the servicers that translate.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        pool: threads for long tokenizations.
        repeated: knows what was asked before.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor, repeated: CachedCalls) -> None:
        self._registry = registry
        self._offload = Offload(pool)
        self._repeated = repeated

    async def translate(self, texts: TranslationQuery, context: GrpcContext) -> tuple[list[Translation], ModelUse]:
        """All outputs, in order.

        Raises:
            ServingError: whatever kept the texts from being translated.
        """
        arrival = Arrival.now(context)
        translator = self._registry().find(texts.selector)
        with UseModel(translator) as use:
            content, compute = partial(_content_of, texts), partial(self._translate, texts, translator, arrival, use)
            return await self._repeated.results(translator, use, content, arrival.deadline, compute), use

    def find(self, wish: ModelSelector) -> Translator:
        """The model that a request means.

        Raises:
            ServingError: there is none.
        """
        return self._registry().find(wish)

    async def translate_with(
        self, translator: Translator, texts: TranslationQuery, context: GrpcContext
    ) -> tuple[list[Translation], ModelUse]:
        """As `translate`, by a model that the caller keeps in use; always computed.

        Raises:
            ServingError: as `translate`.
        """
        with UseModel(translator) as use:
            return await self._translate(texts, translator, Arrival.now(context), use), use

    async def stream(
        self, texts: TranslationQuery, context: GrpcContext
    ) -> AsyncGenerator[TextPiece | TranslationResult | ModelUse]:
        """Pieces as they are decoded, each text's result behind its last piece, and in the end what it took.

        Raises:
            ServingError: as `translate`.
        """
        arrival = Arrival.now(context)
        translator = self._registry().find(texts.selector)
        with UseModel(translator) as use:
            job = await self._prepare(texts, translator, arrival, use, streams=True)
            with job:
                async for event in self._events(job):
                    yield event
                await job.listener.end()  # the timing of the last rows follows their text
            yield use

    async def score(
        self, wish: ModelSelector, pairs: Sequence[tuple[str, str]], context: GrpcContext
    ) -> tuple[list[TranslationScore], ModelUse]:
        """Every pair's score, in order.

        Raises:
            ServingError: whatever kept the pairs from being scored.
        """
        arrival = Arrival.now(context)
        translator = self._registry().find(wish)
        languages = wish.source_language, wish.target_language
        with UseModel(translator) as use:
            content = partial(_pairs_of, pairs, languages)
            compute = partial(self._score, pairs, languages, translator, arrival, use)
            return await self._repeated.results(translator, use, content, arrival.deadline, compute), use

    async def _translate(
        self, texts: TranslationQuery, translator: Translator, arrival: Arrival, use: ModelUse
    ) -> list[Translation]:
        job = await self._prepare(texts, translator, arrival, use)
        with job:
            await job.listener.end()
            job.raise_error()
        return await job.postprocessed(self._outputs(job, job.prepared))

    async def _score(
        self,
        pairs: Sequence[tuple[str, str]],
        languages: tuple[str, str],
        translator: Translator,
        arrival: Arrival,
        use: ModelUse,
    ) -> list[TranslationScore]:
        # In a thread: the first call loads a graph.
        work = await self._offload.run_in_thread(translator.prepare_scores, pairs, *languages)
        listener = EndListener()
        call = Call(work.items, listener, arrival.deadline, field=work.field)
        job: EngineCall[Item] = EngineCall(translator.scorer.engine, call, arrival, use)
        with job:
            await listener.end()
            job.raise_error()
        return work.read()

    async def _prepare(
        self, texts: TranslationQuery, translator: Translator, arrival: Arrival, use: ModelUse, streams: bool = False
    ) -> "_DecodeCall":
        """Validate and tokenize."""
        wish = texts.selector
        prepared = await self._offload.run(
            sum(map(len, texts.contents)),
            translator.admit,
            arrival.deadline,
            texts.contents,
            texts.options,
            wish.source_language,
            wish.target_language,
        )
        if not translator.has_graphs_for(prepared):
            await self._offload.run_in_thread(translator.load_graphs_for, prepared)
        return _DecodeCall(translator, prepared, arrival, use, streams)

    async def _events(self, job: "_DecodeCall") -> AsyncIterator[TextPiece | TranslationResult]:
        growing = [GrowingText(text, job.translator.tokenizer) for text in job.prepared.texts]
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
                    yield TextPiece(index, piece)
                if text.is_done:
                    left -= 1
                    [output] = await self._outputs(job, PreparedRequest((text.text,)))
                    yield TranslationResult(index, output)
            job.raise_error()

    async def _outputs(self, job: "_DecodeCall", prepared: PreparedRequest) -> list[Translation]:
        size = 4 * sum(len(hypothesis.tokens) for row in prepared.rows for hypothesis in row.hypotheses)  # characters, roughly
        return await self._offload.run(size, job.translator.outputs, prepared)


def _content_of(texts: TranslationQuery) -> RequestContent | None:
    """None where it is a matter of chance."""
    wish, options = texts.selector, texts.options
    if may_sample(options):
        return None
    values = (wish.source_language, wish.target_language, list(texts.contents), option_values(options))
    return RequestContent(values, sum(map(len, texts.contents)))


def _pairs_of(pairs: Sequence[tuple[str, str]], languages: tuple[str, str]) -> RequestContent:
    return RequestContent((*languages, pairs), sum(len(source) + len(target) for source, target in pairs))


class _DecodeCall(EngineCall[Row]):
    """One request in the decode engine."""

    def __init__(
        self, translator: Translator, prepared: PreparedRequest, arrival: Arrival, use: ModelUse, streams: bool
    ) -> None:
        self.translator = translator
        self.prepared = prepared
        rows = prepared.rows
        self.listener = _Listener(rows)
        super().__init__(translator.engine, Call(rows, self.listener, arrival.deadline, streams), arrival, use)

    def _record_stages(self) -> None:
        super()._record_stages()
        rows = self.call.rows
        self.use.tokens_out = sum([len(row.shown(row.tokens)) for row in rows])
        self.use.first_token = min([row.first_token for row in rows if row.first_token], default=0.0)

    def _record_work(self, started: float, ended: float) -> None:
        first = min(row.first_token for row in self.call.rows)
        self.use.stages["prefill"] = (started, first)
        self.use.stages["decode"] = (first, ended)


class _Listener(EndListener):
    """Hands the engine's news to the event loop. A slow reader finds more text at once; the engine never waits for it."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = rows
        self._news = asyncio.Event()
        self._changed: dict[int, Row] = {}

    def on_token(self, row: Row) -> None:
        self._mailbox.post(partial(self._take, row))

    async def changed_rows(self) -> list[Row]:
        """Rows with more tokens than at the last call; waits for one."""
        await self._news.wait()
        self._news.clear()
        rows = list(self._changed.values())
        self._changed.clear()
        return rows

    def _take(self, row: Row) -> None:
        self._changed[id(row)] = row
        self._news.set()

    def _end(self) -> None:
        self._changed.update({id(row): row for row in self._rows})
        self._news.set()
        super()._end()
