"""The base of the calls of all tasks: the loaded models, threads for long work, and the response cache."""

from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from triptych_serving.errors import InvalidInputError
from triptych_serving.models.model import Model
from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.cached_calls import CachedCalls, RequestContent
from triptych_serving.rpc.call_context import ModelUse, ModelUseScope
from triptych_serving.rpc.event_loop import Offload
from triptych_text.steps import Steps

Result = TypeVar("Result")
Message = TypeVar("Message")


class ModelCalls:
    """Calls of models, for every protocol.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        cached: the response cache; None: all results are computed.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor, cached: CachedCalls | None) -> None:
        self._registry = registry
        self._offload = Offload(pool)
        self._cached = cached

    async def _results(
        self,
        model: Model,
        content_of: Callable[[], RequestContent | None],
        deadline: float | None,
        compute: Callable[[ModelUse], Awaitable[Any]],
    ) -> tuple[Any, ModelUse]:
        """Return the results of `compute(use)`, or those that the response cache has, and the model's use."""
        with ModelUseScope(model) as use:
            if self._cached is None:
                return await compute(use), use
            return await self._cached.results(model, use, content_of, deadline, partial(compute, use)), use


def required_name(field: str, name: str) -> str:
    """Return the name of a model. Raises InvalidInputError: it is empty."""
    if not name:
        raise InvalidInputError(field, "empty, name a model")
    return name


def converted(results: Iterable[Result | None], convert: Callable[[Result], Message]) -> Steps[list[Message]]:
    """Convert results in small steps, and keep none of them; None is a step without a result."""
    messages = []
    for result in results:
        if result is not None:
            messages.append(convert(result))
        yield
    return messages
