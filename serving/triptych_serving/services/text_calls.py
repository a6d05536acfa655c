"""How every service of the text family answers: find the model, tokenize, wait for the engine, make messages of the results."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from triptych_serving.encoding.options import Work
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.repository.registry import Registry, Wish
from triptych_serving.response_cache.cached_calls import Content, Repeated
from triptych_serving.rpc.call_context import GrpcContext, ModelUse, UseModel
from triptych_serving.rpc.engine_call import Arrival, EndListener, EngineCall
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.scheduling.request import Call, Item
from triptych_serving.services.v1.served import served_by

Result = TypeVar("Result")
Message = TypeVar("Message")


@dataclass(frozen=True)
class Asked(Generic[Result, Message]):
    """A service's part in the answer."""

    capability: str
    characters: int  # of all texts
    prepare: Callable[[TextModel], Work[Result]]
    convert: Callable[[Result], Message]
    texts: int = 1
    content: tuple[Any, ...] | None = None  # all that the results depend on, beside the model; None: look for no equal request


@dataclass(frozen=True)
class Answered(Generic[Message]):
    """One message for each text, and what it took."""

    messages: Sequence[Message]
    use: ModelUse

    @property
    def common(self) -> dict[str, Any]:
        """The members that all responses have."""
        return served_by(self.use)


class TextCalls:
    """Shared by the text servicers.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        pool: threads for long work.
        repeated: knows what was asked before.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor, repeated: Repeated) -> None:
        self._registry = registry
        self._offload = Offload(pool)
        self._repeated = repeated

    async def answer(self, wish: Wish, context: GrpcContext, asked: Asked[Result, Message]) -> Answered[Message]:
        """Do all of it.

        Raises:
            ServingError: whatever kept the request from being answered.
        """
        arrival = Arrival.now(context)
        model = self._registry().find_text(wish, asked.capability)
        with UseModel(model) as use:
            content, compute = partial(_content_of, asked), partial(self._compute, model, asked, arrival, use)
            return Answered(await self._repeated.results(model, use, content, arrival.deadline, compute), use)

    async def _compute(self, model: TextModel, asked: Asked[Result, Message], arrival: Arrival, use: ModelUse) -> list[Message]:
        expected = model.coming.expect(asked.texts, asked.characters)
        model.engine.check(expected, arrival.deadline)  # to refuse is cheap, to tokenize is not
        with model.coming.hold(expected):
            work = await self._offload.run(asked.characters, asked.prepare, model)
        model.coming.learn(sum(item.size for item in work.items), asked.characters)
        listener = EndListener()
        call = Call(work.items, listener, arrival.deadline, field=work.field)
        job: EngineCall[Item] = EngineCall(model.engine, call, arrival, use)
        with job:
            await listener.end()
            job.raise_error()
        return await job.postprocessed(self._offload.run(work.size, _convert, work, asked.convert))


def _content_of(asked: Asked[Any, Any]) -> Content | None:
    return None if asked.content is None else Content((asked.capability, *asked.content), asked.characters)


def _convert(work: Work[Result], convert: Callable[[Result], Message]) -> list[Message]:
    return [convert(result) for result in work.read()]
