"""The base of the calls of all tasks: the loaded models, threads for long work, and the response cache."""

from collections.abc import Callable
from concurrent.futures import Executor

from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.cached_calls import GetResults
from triptych_serving.rpc.event_loop import Offload


class ModelCalls:
    """Calls of models, for every protocol.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        get_results: computes results, or takes them from the response cache.
    """

    def __init__(self, registry: Callable[[], Registry], pool: Executor, get_results: GetResults) -> None:
        self._registry = registry
        self._offload = Offload(pool)
        self._get_results = get_results
