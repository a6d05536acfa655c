"""Translation, streaming and scoring, for every protocol."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from triptych.decoding import DecodingOptions
from triptych_serving.models.translation.options import DEFAULTS, may_sample, option_values
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.models.translation.preprocess import PreparedRequest
from triptych_serving.models.translation.scoring import TranslationScore
from triptych_serving.models.translation.translator import TranslationModel
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse, ModelUseScope
from triptych_serving.rpc.engine_call import Arrival, EngineCall
from triptych_serving.rpc.event_loop import ANY_SIZE
from triptych_serving.services.decode_calls import DecodeCalls
from triptych_serving.services.model_calls import converted
from triptych_text.steps import Steps


@dataclass(frozen=True)
class TranslationQuery:
    """A request to translate texts; `convert` makes what is returned of each translation."""

    selector: ModelSelector
    contents: Sequence[str]
    options: DecodingOptions = DEFAULTS
    convert: Callable[[Translation], Any] = lambda translation: translation

    field: ClassVar[str] = "contents"

    @property
    def work(self) -> int:
        return sum(map(len, self.contents))

    def find(self, registry: Registry) -> TranslationModel[Any]:
        return registry.find(self.selector)

    def prepare(self, translator: TranslationModel[Any], deadline: float | None) -> Steps[PreparedRequest]:
        return translator.admit_steps(deadline, self.contents, self.options, *self.selector.languages)

    def content(self, _translator: TranslationModel[Any]) -> RequestContent | None:
        if may_sample(self.options):
            return None
        values = (*self.selector.languages, list(self.contents), option_values(self.options))
        return RequestContent(values, self.work)

    def outputs(self, translator: TranslationModel[Any], prepared: PreparedRequest) -> tuple[int, Steps[list[Any]]]:
        rows = [(row, hypothesis) for row in prepared.rows for hypothesis in row.hypotheses]
        size = 4 * sum([len(hypothesis.tokens) for _, hypothesis in rows])
        if prepared.rows[0].search.alignment:
            size += sum([len(hypothesis.tokens) * row.size for row, hypothesis in rows])
        return size, converted(_released(prepared, translator.output_steps(prepared)), self.convert)


@dataclass(frozen=True)
class ScoreQuery:
    """A request to score translations."""

    selector: ModelSelector
    pairs: Sequence[tuple[str, str]]  # sources and translations
    convert: Callable[[TranslationScore], Any]

    def content(self) -> RequestContent:
        """Return all that the results depend on, except the model."""
        characters = sum(len(source) + len(target) for source, target in self.pairs)
        return RequestContent((*self.selector.languages, self.pairs), characters)


class TranslationCalls(DecodeCalls):
    """Translate and score, for every protocol."""

    def find(self, selector: ModelSelector) -> TranslationModel[Any]:
        """Find the model of a request. Raises ServingError: there is none."""
        return self._registry().find(selector)

    async def translate_with(
        self, translator: TranslationModel[Any], query: TranslationQuery, context: GrpcContext
    ) -> tuple[list[Any], ModelUse]:
        """Translate with a model that the caller keeps in use, without the response cache. Raises ServingError: as `run`."""
        with ModelUseScope(translator) as use:
            return await self._compute(query, translator, Arrival.now(context), use), use

    async def score(self, query: ScoreQuery, context: GrpcContext) -> tuple[list[Any], ModelUse]:
        """Return the score of each pair, converted and in order. Raises ServingError: the pairs cannot be scored."""
        arrival = Arrival.now(context)
        translator = self.find(query.selector)
        compute = partial(self._score, query, translator, arrival)
        return await self._results(translator, query.content, arrival.deadline, compute)

    async def _score(self, query: ScoreQuery, translator: TranslationModel[Any], arrival: Arrival, use: ModelUse) -> list[Any]:
        # In a thread, even if it is short: the first call loads a graph.
        steps = translator.score_steps(arrival.deadline, query.pairs, *query.selector.languages)
        work = await self._offload.run_steps(ANY_SIZE, arrival.deadline, steps)
        call = await EngineCall.run(translator.scorer.engine, work, arrival, use)
        scores = converted(work.read(), query.convert)
        return await call.postprocessed(self._offload.run_steps(work.size, arrival.deadline, scores))


def _released(prepared: PreparedRequest, steps: Iterable[Translation | None]) -> Iterator[Translation | None]:
    """Drop the rows' results as soon as they are converted: with alignments, they are as large as the response."""
    texts = iter(prepared.texts)
    for translation in steps:
        yield translation
        if translation is not None:
            for row in next(texts).rows:
                row.hypotheses = ()
