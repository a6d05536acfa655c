"""Text generation and its streams, for every protocol."""

from collections.abc import AsyncIterator, Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.generation.text import Generation, GrowingChoice, PreparedGeneration
from triptych_serving.models.translation.options import option_values
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.scheduling.request import TokenLogProbability
from triptych_serving.services.decode_calls import DecodeCall, DecodeCalls, FinishedText, TextPiece
from triptych_serving.services.text_calls import converted
from triptych_text.steps import Steps

TOKEN_CHARACTERS = 4  # roughly


@dataclass(frozen=True)
class GenerationQuery:
    """A request to continue texts or images.

    `convert` makes what is returned of each prompt's results, with the model that made them.
    """

    selector: ModelSelector
    request: GenerationRequest
    convert: Callable[[Generator, Generation], Any] = lambda _, generation: generation

    @property
    def field(self) -> str:
        """The field with the inputs."""
        return self.request.field

    @property
    def work(self) -> int:
        """Roughly the characters to process."""
        return self.request.work

    def find(self, registry: Registry) -> Generator:
        """Find the model."""
        return registry.find_generator(self.selector, self.request.task)

    def prepare(self, generator: Generator, deadline: float | None) -> Steps[PreparedGeneration]:
        """Check and tokenize in small steps."""
        return generator.admit_steps(deadline, self.request)

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
class GenerationPiece(TextPiece):
    """The next piece of one choice of a prompt, with the log-probabilities since the last one."""

    choice: int = 0
    log_probabilities: tuple[TokenLogProbability, ...] = ()
    generator: Generator | None = None


class GenerationCalls(DecodeCalls[Generator, GenerationQuery, PreparedGeneration]):
    """Generate text, for every protocol."""

    async def generate(self, query: GenerationQuery, context: GrpcContext) -> tuple[list[Any], ModelUse]:
        """Return the results of all prompts, converted and in order.

        Raises:
            ServingError: the request cannot be served.
        """
        return await self._run(query, context)

    async def _events(
        self, call: DecodeCall, query: GenerationQuery, model: Generator, prepared: PreparedGeneration, deadline: float | None
    ) -> AsyncIterator[TextPiece | FinishedText]:
        growing = {
            id(row): (index, choice, GrowingChoice(prompt, row, model.tokenizer))
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
                    yield GenerationPiece(index, piece, choice, tuple(notes), model)
                left[index] -= text.is_done
                if not left[index]:
                    finished = PreparedGeneration((prepared.prompts[index],))
                    [generation] = await self._outputs(query, model, finished, deadline)
                    yield FinishedText(index, generation)
            call.raise_error()

    async def _outputs(
        self, query: GenerationQuery, model: Generator, prepared: PreparedGeneration, deadline: float | None
    ) -> list[Any]:
        size = TOKEN_CHARACTERS * sum(len(row.tokens) + 20 * len(row.log_probabilities) for row in prepared.rows)
        steps = converted(model.outputs(prepared), partial(query.convert, model))
        return await self._offload.run_steps(size, deadline, steps)
