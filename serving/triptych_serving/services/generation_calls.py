"""Text generation and its streams, for every protocol."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.generation.text import Generation, GrowingChoice, PreparedGeneration
from triptych_serving.models.translation.options import option_values
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import GetResults, RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse, UseModel
from triptych_serving.rpc.engine_call import Arrival
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.scheduling.request import TokenLogProbability
from triptych_serving.services.text_calls import converted
from triptych_serving.services.translation_calls import DecodeCall, FinishedTranslation, TranslationEvent, TranslationPiece

TOKEN_CHARACTERS = 4  # roughly


@dataclass(frozen=True)
class GenerationQuery:
    """A request to continue texts or images.

    `convert` makes what is returned of each prompt's results, with the model that made them.
    """

    selector: ModelSelector
    request: GenerationRequest
    convert: Callable[[Generator, Generation], Any] = lambda _, generation: generation

    def content(self, generator: Generator) -> RequestContent | None:
        """Return all that the results depend on, except the model; None if they are random."""
        request = self.request
        if generator.samples(request):
            return None
        messages = [astuple(message) for message in request.messages]
        inputs = list(request.prompts), messages, list(request.images), request.rows, list(request.stop)
        options = option_values(request.options), request.max_tokens, request.n, request.top_logprobs, request.echo
        return RequestContent((*inputs, *options), request.work)


@dataclass(frozen=True)
class GenerationPiece(TranslationPiece):
    """The next piece of one choice of a prompt, with the log-probabilities since the last one."""

    choice: int = 0
    log_probabilities: tuple[TokenLogProbability, ...] = ()
    generator: Generator | None = None


class GenerationCalls:
    """Generate text, for every protocol.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        pool: threads for long work.
        get_results: computes results, or takes them from the response cache.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor, get_results: GetResults) -> None:
        self._registry = registry
        self._offload = Offload(pool)
        self._get_results = get_results

    async def generate(self, query: GenerationQuery, context: GrpcContext) -> tuple[list[Any], ModelUse]:
        """Return the results of all prompts, converted and in order.

        Raises:
            ServingError: the request cannot be served.
        """
        arrival = Arrival.now(context)
        generator = self._registry().find_generator(query.selector, query.request.task)
        with UseModel(generator) as use:
            compute = partial(self._generate, query, generator, arrival, use)
            return await self._get_results(generator, use, partial(query.content, generator), arrival.deadline, compute), use

    async def stream(self, query: GenerationQuery, context: GrpcContext) -> AsyncGenerator[TranslationEvent]:
        """Yield pieces as they are generated, each prompt's results after its last piece, and finally the model's use.

        Raises:
            ServingError: as `generate`.
        """
        arrival = Arrival.now(context)
        generator = self._registry().find_generator(query.selector, query.request.task)
        with UseModel(generator) as use:
            prepared = await self._prepare(query, generator, arrival)
            call = DecodeCall(generator.engine, prepared.rows, arrival, use, True, query.request.field)
            with call:
                async for event in self._events(call, generator, prepared, query, arrival.deadline):
                    yield event
                await call.listener.end()
            yield use

    async def _generate(self, query: GenerationQuery, generator: Generator, arrival: Arrival, use: ModelUse) -> list[Any]:
        prepared = await self._prepare(query, generator, arrival)
        call = DecodeCall(generator.engine, prepared.rows, arrival, use, field=query.request.field)
        with call:
            await call.listener.end()
            call.raise_error()
        return await call.postprocessed(self._outputs(generator, prepared, query, arrival.deadline))

    async def _prepare(self, query: GenerationQuery, generator: Generator, arrival: Arrival) -> PreparedGeneration:
        """Check and tokenize the prompts, and load the graphs that the search needs."""
        steps = generator.admit_steps(arrival.deadline, query.request)
        prepared = await self._offload.run_steps(query.request.work, arrival.deadline, steps)
        if not generator.has_graphs_for(prepared):
            await self._offload.run_in_thread(generator.load_graphs_for, prepared)
        return prepared

    async def _events(
        self,
        call: DecodeCall,
        generator: Generator,
        prepared: PreparedGeneration,
        query: GenerationQuery,
        deadline: float | None,
    ) -> AsyncIterator[TranslationPiece | FinishedTranslation]:
        growing = {
            id(row): (index, choice, GrowingChoice(prompt, row, generator.tokenizer))
            for index, prompt in enumerate(prepared.prompts)
            for choice, row in enumerate(prompt.rows)
        }
        left = [len(prompt.rows) for prompt in prepared.prompts]
        while any(left):
            for row in await call.listener.changed_rows():
                call.raise_error()
                index, choice, text = growing[id(row)]
                if text.is_done:
                    continue
                piece, notes = text.advance()
                if piece or notes:
                    yield GenerationPiece(index, piece, choice, tuple(notes), generator)
                left[index] -= text.is_done
                if not left[index]:
                    finished = PreparedGeneration((prepared.prompts[index],))
                    [generation] = await self._outputs(generator, finished, query, deadline)
                    yield FinishedTranslation(index, generation)
            call.raise_error()

    async def _outputs(
        self, generator: Generator, prepared: PreparedGeneration, query: GenerationQuery, deadline: float | None
    ) -> list[Any]:
        """Convert rows that have ended."""
        size = TOKEN_CHARACTERS * sum(len(row.tokens) + 20 * len(row.log_probabilities) for row in prepared.rows)
        steps = converted(generator.outputs(prepared), partial(query.convert, generator))
        return await self._offload.run_steps(size, deadline, steps)
