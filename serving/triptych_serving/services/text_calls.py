"""The path of every text-task request: find the model, tokenize, wait for the engine, convert the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from triptych_serving.encoding.options import Work
from triptych_serving.models.text.task import TextInput, TextTask, characters_of
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.response_cache.cached_calls import RequestContent
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.rpc.engine_call import Arrival, EngineCall
from triptych_serving.rpc.event_loop import INLINE_CHARACTERS
from triptych_serving.services.model_calls import ModelCalls, converted
from triptych_text.steps import Steps, finish

Result = TypeVar("Result")
Message = TypeVar("Message")


@dataclass(frozen=True)
class TextQuery(Generic[Result, Message]):
    """A request for a text task."""

    task: TextTask[Result]
    inputs: Sequence[TextInput]
    options: Mapping[str, Any]  # of the task; texts in tuples
    convert: Callable[[Result], Message]
    check: Callable[[Work[Result]], None] = lambda _: None  # raises an error if the results would be too large

    @property
    def characters(self) -> int:
        """Length of all texts."""
        return characters_of(self.inputs, self.options)

    def prepare(self, model: TextModel) -> Steps[Work[Result]]:
        """Check and tokenize in small steps."""
        return model.prepare_steps(self.task, self.inputs, **self.options)

    def content(self) -> RequestContent:
        """Return all that the results depend on, except the model."""
        return RequestContent((self.task.name, list(self.inputs), sorted(self.options.items())), self.characters)


class TextCalls(ModelCalls):
    """Run text tasks, for every protocol."""

    async def run(
        self, selector: ModelSelector, query: TextQuery[Result, Message], context: GrpcContext
    ) -> tuple[list[Message], ModelUse]:
        """Return one message for each input, in order. Raises ServingError: the request cannot be served."""
        arrival = Arrival.now(context)
        model = self._registry().find_text(selector, query.task.name)
        return await self._results(model, query.content, arrival.deadline, partial(self._compute, model, query, arrival))

    async def _compute(
        self, model: TextModel, query: TextQuery[Result, Message], arrival: Arrival, use: ModelUse
    ) -> list[Message]:
        characters = query.characters
        expected = model.incoming_texts.expect(len(query.inputs), characters)._replace(field=query.task.names.list)
        model.engine.check(expected, arrival.deadline)  # rejecting is cheap, tokenizing is not
        if characters <= INLINE_CHARACTERS:  # no other call gets its turn meanwhile
            work = finish(query.prepare(model))
        else:
            with model.incoming_texts.hold(expected):
                work = await self._offload.run_steps(characters, arrival.deadline, query.prepare(model))
        model.incoming_texts.learn(sum([item.size for item in work.items]), characters)
        query.check(work)
        engine_call = await EngineCall.run(model.engine, work, arrival, use)
        messages = converted(work.read(), query.convert)
        return await engine_call.postprocessed(self._offload.run_steps(work.size, arrival.deadline, messages))
