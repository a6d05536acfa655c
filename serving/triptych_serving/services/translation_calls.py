"""Translation, streaming and scoring, for every protocol."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from triptych_serving.decoding.engine import DecodeEngine
from triptych_serving.models.translation.options import DEFAULTS, DecodingOptions, may_sample, option_values
from triptych_serving.models.translation.postprocess import GrowingText, PreparedRequest, Translation
from triptych_serving.models.translation.scoring import TranslationScore
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import GetResults, RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse, UseModel
from triptych_serving.rpc.engine_call import Arrival, EndListener, EngineCall
from triptych_serving.rpc.event_loop import INLINE_CHARACTERS, Offload
from triptych_serving.scheduling.request import Call, Row
from triptych_serving.services.text_calls import converted

ANY_SIZE = INLINE_CHARACTERS + 1


def _itself(result: Any) -> Any:
    return result


@dataclass(frozen=True)
class TranslationQuery:
    """A request to translate texts; `convert` makes what is returned of each translation."""

    selector: ModelSelector
    contents: Sequence[str]
    options: DecodingOptions = DEFAULTS
    convert: Callable[[Translation], Any] = _itself

    @property
    def characters(self) -> int:
        """Length of all texts."""
        return sum(map(len, self.contents))

    def content(self) -> RequestContent | None:
        """Return all that the results depend on, except the model; None if they are random."""
        if may_sample(self.options):
            return None
        values = (*self.selector.languages, list(self.contents), option_values(self.options))
        return RequestContent(values, self.characters)


@dataclass(frozen=True)
class ScoreQuery:
    """A request to score translations."""

    selector: ModelSelector
    pairs: Sequence[tuple[str, str]]  # sources and translations
    convert: Callable[[TranslationScore], Any] = _itself

    @property
    def characters(self) -> int:
        """Length of all texts."""
        return sum(len(source) + len(target) for source, target in self.pairs)

    def content(self) -> RequestContent:
        """Return all that the results depend on, except the model."""
        return RequestContent((*self.selector.languages, self.pairs), self.characters)


@dataclass(frozen=True)
class TranslationPiece:
    """The next piece of one text's translation."""

    index: int
    text: str


@dataclass(frozen=True)
class FinishedTranslation:
    """The complete translation of one text, after its last piece, as `TranslationQuery.convert` made it."""

    index: int
    translation: Any


TranslationEvent = TranslationPiece | FinishedTranslation | ModelUse


class TranslationCalls:
    """Translate and score, for every protocol.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        pool: threads for long work.
        get_results: computes results, or takes them from the response cache.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor, get_results: GetResults) -> None:
        self._registry = registry
        self._offload = Offload(pool)
        self._get_results = get_results

    async def translate(self, query: TranslationQuery, context: GrpcContext) -> tuple[list[Any], ModelUse]:
        """Return all translations, converted and in order.

        Raises:
            ServingError: the texts cannot be translated.
        """
        arrival = Arrival.now(context)
        translator = self._registry().find(query.selector)
        with UseModel(translator) as use:
            compute = partial(self._translate, query, translator, arrival, use)
            return await self._get_results(translator, use, query.content, arrival.deadline, compute), use

    def find(self, selector: ModelSelector) -> Translator:
        """Find the model of a request.

        Raises:
            ServingError: there is none.
        """
        return self._registry().find(selector)

    async def translate_with(
        self, translator: Translator, query: TranslationQuery, context: GrpcContext
    ) -> tuple[list[Any], ModelUse]:
        """Translate with a model that the caller keeps in use, without the response cache.

        Raises:
            ServingError: as `translate`.
        """
        with UseModel(translator) as use:
            return await self._translate(query, translator, Arrival.now(context), use), use

    async def stream(self, query: TranslationQuery, context: GrpcContext) -> AsyncGenerator[TranslationEvent]:
        """Yield pieces as they are decoded, each text's translation after its last piece, and finally the model's use.

        Raises:
            ServingError: as `translate`.
        """
        arrival = Arrival.now(context)
        translator = self._registry().find(query.selector)
        with UseModel(translator) as use:
            call = await self._prepare(query, translator, arrival, use, streams=True)
            with call:
                async for event in self._events(call, query, arrival.deadline):
                    yield event
                await call.listener.end()  # the times of the last rows follow their text
            yield use

    async def score(self, query: ScoreQuery, context: GrpcContext) -> tuple[list[Any], ModelUse]:
        """Return the score of each pair, converted and in order.

        Raises:
            ServingError: the pairs cannot be scored.
        """
        arrival = Arrival.now(context)
        translator = self._registry().find(query.selector)
        with UseModel(translator) as use:
            compute = partial(self._score, query, translator, arrival, use)
            return await self._get_results(translator, use, query.content, arrival.deadline, compute), use

    async def _translate(self, query: TranslationQuery, translator: Translator, arrival: Arrival, use: ModelUse) -> list[Any]:
        call = await self._prepare(query, translator, arrival, use)
        with call:
            await call.listener.end()
            call.raise_error()
        return await call.postprocessed(self._outputs(call, call.prepared, query, arrival.deadline))

    async def _score(self, query: ScoreQuery, translator: Translator, arrival: Arrival, use: ModelUse) -> list[Any]:
        # In a thread, even if it is short: the first call loads a graph.
        steps = translator.score_steps(arrival.deadline, query.pairs, *query.selector.languages)
        work = await self._offload.run_steps(ANY_SIZE, arrival.deadline, steps)
        call = await EngineCall.run(translator.scorer.engine, work, arrival, use)
        scores = converted(work.read(), query.convert)
        return await call.postprocessed(self._offload.run_steps(work.size, arrival.deadline, scores))

    async def _prepare(
        self, query: TranslationQuery, translator: Translator, arrival: Arrival, use: ModelUse, streams: bool = False
    ) -> "_TranslationCall":
        """Check and tokenize the texts, and load the graphs that the search needs."""
        steps = translator.admit_steps(arrival.deadline, query.contents, query.options, *query.selector.languages)
        prepared = await self._offload.run_steps(query.characters, arrival.deadline, steps)
        if not translator.has_graphs_for(prepared):
            await self._offload.run_in_thread(translator.load_graphs_for, prepared)
        return _TranslationCall(translator, prepared, arrival, use, streams)

    async def _events(
        self, call: "_TranslationCall", query: TranslationQuery, deadline: float | None
    ) -> AsyncIterator[TranslationPiece | FinishedTranslation]:
        growing = [GrowingText(text, call.translator.tokenizer) for text in call.prepared.texts]
        owners = {id(row): index for index, text in enumerate(call.prepared.texts) for row in text.rows}
        left = len(growing)
        while left:
            for row in await call.listener.changed_rows():
                call.raise_error()
                index = owners[id(row)]
                text = growing[index]
                if text.is_done:
                    continue
                if piece := text.advance(row):
                    yield TranslationPiece(index, piece)
                if text.is_done:
                    left -= 1
                    [translation] = await self._outputs(call, PreparedRequest((text.text,)), query, deadline)
                    yield FinishedTranslation(index, translation)
            call.raise_error()

    async def _outputs(
        self, call: "_TranslationCall", prepared: PreparedRequest, query: TranslationQuery, deadline: float | None
    ) -> list[Any]:
        """Convert the rows of texts, which all have ended."""
        rows = [(row, hypothesis) for row in prepared.rows for hypothesis in row.hypotheses]
        size = 4 * sum([len(hypothesis.tokens) for _, hypothesis in rows])  # characters, roughly
        if prepared.rows[0].search.alignment:
            size += sum([len(hypothesis.tokens) * row.size for row, hypothesis in rows])
        rows.clear()  # so that nothing but the prepared rows keeps their results
        steps = converted(_released(prepared, call.translator.output_steps(prepared)), query.convert)
        return await self._offload.run_steps(size, deadline, steps)


def _released(prepared: PreparedRequest, steps: Iterable[Translation | None]) -> Iterator[Translation | None]:
    """Drop the rows' results as soon as they are converted: with alignments, they are as large as the response."""
    texts = iter(prepared.texts)
    for translation in steps:
        yield translation
        if translation is not None:
            for row in next(texts).rows:
                row.hypotheses = ()


class DecodeCall(EngineCall[Row]):
    """One request in a decode engine.

    Args:
        engine: decodes the rows.
        rows: of the request.
        arrival: of the request.
        use: of the model; receives the stages' times.
        streams: listen to every token.
        field: the request's field that the rows come from, for error messages.
    """

    def __init__(
        self,
        engine: DecodeEngine,
        rows: Sequence[Row],
        arrival: Arrival,
        use: ModelUse,
        streams: bool = False,
        field: str = "contents",
    ) -> None:
        self.listener = TokenListener(rows)
        super().__init__(engine, Call(rows, self.listener, arrival.deadline, streams, field), arrival, use)

    def _record_stages(self) -> None:
        super()._record_stages()
        rows = self.call.rows
        self.use.tokens_out = sum([len(row.shown(row.tokens)) for row in rows])
        self.use.first_token = min([row.first_token for row in rows if row.first_token], default=0.0)

    def _record_work(self, started: float, ended: float) -> None:
        first = min(row.first_token for row in self.call.rows)
        self.use.stages["prefill"] = (started, first)
        self.use.stages["decode"] = (first, ended)


class _TranslationCall(DecodeCall):
    def __init__(
        self, translator: Translator, prepared: PreparedRequest, arrival: Arrival, use: ModelUse, streams: bool
    ) -> None:
        self.translator, self.prepared = translator, prepared
        super().__init__(translator.engine, prepared.rows, arrival, use, streams)


class TokenListener(EndListener):
    """Collect the rows with new tokens for the event loop. The engine never waits for a slow reader, who gets more at once."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._rows = rows
        self._has_changes = asyncio.Event()
        self._changed: dict[int, Row] = {}

    def on_token(self, row: Row) -> None:
        self._mailbox.post(partial(self._add, row))

    async def changed_rows(self) -> list[Row]:
        """Wait for new tokens, and return the rows that have some since the last call."""
        await self._has_changes.wait()
        self._has_changes.clear()
        rows = list(self._changed.values())
        self._changed.clear()
        return rows

    def _add(self, row: Row) -> None:
        self._changed[id(row)] = row
        self._has_changes.set()

    def _end(self) -> None:
        self._changed.update({id(row): row for row in self._rows})
        self._has_changes.set()
        super()._end()
