"""How repeated requests are answered, whatever they ask for: their results are looked up before they are computed."""

import marshal
import pickle
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any, Protocol, TypeVar

from triptych_serving.models.model import Model
from triptych_serving.response_cache.response_cache import ResponseCache, ResponseSource
from triptych_serving.rpc.call_context import ModelUse, current_call
from triptych_serving.rpc.event_loop import Offload

ROW_BYTES = 1 << 12  # of the results of one text or image, roughly
LARGE = 1 << 18  # bytes or characters; packing more than this takes a millisecond, and is done in a thread

Results = TypeVar("Results")


@dataclass(frozen=True)
class RequestContent:
    """What a request asks for, beside the model: two that are equal have equal results.

    Args:
        values: strings, bytes, numbers, None, and lists and tuples of them.
        size: bytes or characters of all, roughly.
    """

    values: tuple[Any, ...]
    size: int


class GetResults(Protocol):
    """Return the results of a request: `compute_results`, or `CachedCalls.results` if the server has a response cache."""

    async def __call__(
        self,
        model: Model,
        use: ModelUse,
        content_of: Callable[[], RequestContent | None],
        deadline: float | None,
        compute: Callable[[], Awaitable[Results]],
        /,
    ) -> Results: ...


async def compute_results(
    _model: Model,
    _use: ModelUse,
    _content_of: Callable[[], RequestContent | None],
    _deadline: float | None,
    compute: Callable[[], Awaitable[Results]],
) -> Results:
    """Compute the results: what a server without a response cache does. Arguments as for `CachedCalls.results`."""
    return await compute()


class CachedCalls:
    """Shared by all calls.

    Args:
        repeats: what is kept, and what is under way.
        pool: threads for large requests and results.
    """

    def __init__(self, repeats: ResponseCache, pool: Executor) -> None:
        self._repeats = repeats
        self._offload = Offload(pool)

    async def results(
        self,
        model: Model,
        use: ModelUse,
        content_of: Callable[[], RequestContent | None],
        deadline: float | None,
        compute: Callable[[], Awaitable[Results]],
    ) -> Results:
        """What `compute()` gives, or has given for an equal request of the same RPC to the same model.

        Args:
            model: the one that is to answer.
            use: of the model; is told when it need not work.
            content_of: gives the request's; None: the results are not the same each time. Asked only where anything is kept.
            deadline: the caller's, clock seconds.
            compute: does the work.

        Raises:
            ServingError: whatever kept the request from being answered.
        """
        if (content := content_of()) is None:
            return await compute()
        began = monotonic()
        results: list[Results] = []

        async def pack() -> bytes:
            results.append(await compute())
            packed: bytes = await self._run(
                content.size + use.rows * ROW_BYTES, pickle.dumps, results[0], pickle.HIGHEST_PROTOCOL
            )
            return packed

        digest = await self._run(content.size, _digest, content.values)
        key = self._repeats.key(model, current_call.get().full_method, digest)
        asked = monotonic()
        answer = await self._repeats.answer(key, deadline, pack)
        if answer.source is ResponseSource.COMPUTED:
            return results[0]  # the time that it took is noted already
        use.cached = True
        use.stages["preprocess"] = began, asked
        use.stages["queue"] = asked, monotonic()  # for another's work
        unpacked: Results = await self._run(len(answer.value), pickle.loads, answer.value)
        return unpacked

    async def _run(self, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
        if size > LARGE:
            return await self._offload.run_in_thread(function, *arguments)
        return function(*arguments)


def _digest(values: tuple[Any, ...]) -> bytes:
    # Version 2 writes equal values equally; later ones write how often an object occurs too.
    return sha256(marshal.dumps(values, 2)).digest()
