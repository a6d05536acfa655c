"""The path of computed responses through the response cache."""

import marshal
import pickle
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any, TypeVar

from triptych_serving.models.model import Model
from triptych_serving.response_cache.response_cache import ResponseCache
from triptych_serving.rpc.call_context import ModelUse, current_call
from triptych_serving.rpc.event_loop import Offload

ROW_BYTES = 1 << 12  # rough size of the results of one text or image
LARGE = 1 << 18  # bytes or characters; packing more than this takes a millisecond, and is done in a thread

Results = TypeVar("Results")


@dataclass(frozen=True)
class RequestContent:
    """All that a request's results depend on, except the model: requests with equal content have equal results."""

    values: tuple[Any, ...]  # strings, bytes, numbers, None, and lists and tuples of them
    size: int  # bytes or characters of all, roughly


class CachedCalls:
    """Answers repeated requests from a cache.

    Args:
        cache: kept responses, and computations in flight.
        pool: threads for large requests and results.
    """

    def __init__(self, cache: ResponseCache, pool: Executor) -> None:
        self._cache = cache
        self._offload = Offload(pool)

    async def results(
        self,
        model: Model,
        use: ModelUse,
        content_of: Callable[[], RequestContent | None],
        deadline: float | None,
        compute: Callable[[], Awaitable[Results]],
    ) -> Results:
        """Return the results of `compute()`, or those of an equal request of the same RPC to the same model.

        Args:
            use: the request's use of the model; is told if the model is not needed.
            content_of: returns the request's content; None: the results differ each time.
            deadline: the caller's, clock seconds.

        Raises:
            ServingError: the request cannot be served.
        """
        if (content := content_of()) is None:
            return await compute()
        began = monotonic()
        results: list[Results] = []

        async def pack() -> bytes:
            results.append(await compute())
            size = content.size + use.rows * ROW_BYTES
            packed: bytes = await self._run(size, pickle.dumps, results[0], pickle.HIGHEST_PROTOCOL)
            return packed

        digest = await self._run(content.size, _digest, content.values)
        key = self._cache.key(model, current_call.get().full_method, digest)
        requested = monotonic()
        packed = await self._cache.respond(key, deadline, pack)
        if results:  # computed here, so that their stages are recorded already
            return results[0]
        use.cached = True
        use.stages["preprocess"] = began, requested
        use.stages["queue"] = requested, monotonic()  # waiting for an equal request
        unpacked: Results = await self._run(len(packed), pickle.loads, packed)
        return unpacked

    async def _run(self, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
        if size > LARGE:
            return await self._offload.run_in_thread(function, *arguments)
        return function(*arguments)


def _digest(values: tuple[Any, ...]) -> bytes:
    # Version 2 writes equal values equally; later ones also write how often an object occurs.
    return sha256(marshal.dumps(values, 2)).digest()
