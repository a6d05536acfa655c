"""One replica: a server with its engine, whose calls Ray's proxies bring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from grpc import aio

from triptych_ray.context import RayContext
from triptych_ray.methods import METHODS, Method
from triptych_ray.options import ReplicaOptions
from triptych_ray.portless import PortlessServer
from triptych_ray.replies import Ended, Packed
from triptych_serving.errors import UnavailableError

if TYPE_CHECKING:
    from ray.serve.grpc_util import RayServegRPCContext


class Replica:
    """Has a method for every one of METHODS, by which Ray finds it; they are added below.

    Args:
        options: see ReplicaOptions.
    """

    async def __init__(self, options: ReplicaOptions) -> None:  # type: ignore[misc]  # Ray awaits it
        self._server = PortlessServer(options.server_options(*_assigned()))
        await self._server.start()

    async def check_health(self) -> None:
        """Ray replaces a replica for which this fails a few times.

        Raises:
            UnavailableError: it has no model.
        """
        if not self._server.registry.ready:
            raise UnavailableError("no model is loaded")

    async def __del__(self) -> None:
        """Ray awaits it when no requests are left, or its time is up."""
        self._server.stop()
        await self._server.wait()

    async def answer(self, method: Method, request: bytes, context: RayServegRPCContext) -> Packed:
        """One message for another."""
        handler: Any = self._server.transport.handler(method.path)
        try:
            return Packed(await handler.unary_unary(request, RayContext(context)))
        except aio.AbortError:  # the context has the status
            return Packed(b"")

    async def stream(self, method: Method, request: Any, context: RayServegRPCContext) -> AsyncIterator[Packed | Ended]:
        """Messages for one, or for a stream of them."""
        handler = self._server.transport.handler(method.path)
        behaviour: Any = handler.stream_stream or handler.unary_stream
        try:
            async for response in behaviour(request, RayContext(context)):
                yield Packed(response)
        except aio.AbortError:
            yield Ended()


def _assigned() -> tuple[float, float]:
    """CPUs and GPUs."""
    import ray  # noqa: PLC0415 only where there is a cluster

    resources: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return resources.get("CPU", 1.0), resources.get("GPU", 0.0)


def _entrance(method: Method) -> Callable[..., Any]:
    """What Ray calls for a method; it looks for the name `grpc_context`, and whether this is a generator."""

    async def answer(self: Replica, request: bytes, grpc_context: RayServegRPCContext) -> Packed:
        return await self.answer(method, request, grpc_context)

    async def stream(self: Replica, request: Any, grpc_context: RayServegRPCContext) -> AsyncIterator[Packed | Ended]:
        async for response in self.stream(method, request, grpc_context):
            yield response

    return stream if method.gives_stream else answer


for each in METHODS:
    setattr(Replica, each.name, _entrance(each))
