"""Requests to generate text, from every protocol."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.generation.text import Generation, PreparedGeneration
from triptych_serving.models.translation.options import option_values
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.response_cache.cached_calls import RequestContent
from triptych_serving.services.model_calls import converted
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
        return self.request.field

    @property
    def work(self) -> int:
        return self.request.work

    def find(self, registry: Registry) -> Generator:
        return registry.find_generator(self.selector, self.request.task)

    def prepare(self, generator: Generator, deadline: float | None) -> Steps[PreparedGeneration]:
        return generator.admit_steps(deadline, self.request)

    def content(self, generator: Generator) -> RequestContent | None:
        request = self.request
        if generator.may_vary(request):
            return None
        messages = [astuple(message) for message in request.messages]
        inputs = (
            list(request.prompts),
            [list(prompt) for prompt in request.token_prompts],
            messages,
            list(request.images),
            request.rows,
            list(request.stop),
            request.json_schema,
            request.regex,
        )
        options = option_values(request.options), request.max_tokens, request.n, request.top_logprobs, request.echo
        variables = sorted((name, repr(value)) for name, value in request.template_variables.items())  # True is not 1
        tools = [astuple(tool) for tool in request.tools], request.tool_choice
        return RequestContent((*inputs, *options, variables, *tools, sorted(request.logit_bias.items())), request.work)

    def outputs(self, generator: Generator, prepared: PreparedGeneration) -> tuple[int, Steps[list[Any]]]:
        size = TOKEN_CHARACTERS * sum(len(row.tokens) + 20 * len(row.log_probabilities) for row in prepared.rows)
        return size, converted(generator.outputs(prepared), partial(self.convert, generator))
