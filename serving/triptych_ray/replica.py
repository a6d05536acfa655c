"""One replica: a server with its engine, whose calls come from Ray's proxies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from grpc import aio

from triptych_ray.methods import METHODS, Handler, path_of
from triptych_ray.options import ReplicaOptions
from triptych_serving.errors import UnavailableError
from triptych_serving.rpc.dispatch import Router
from triptych_serving.server import Server

if TYPE_CHECKING:
    from ray.serve.grpc_util import RayServegRPCContext


class RayContext:
    """The part of `grpc.aio.ServicerContext` that handlers use, on top of Ray's context.

    Ray's proxy does not pass deadlines on: it cancels the call when the deadline passes.
    """

    def __init__(self, context: RayServegRPCContext) -> None:
        self._context = context

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return tuple(self._context.invocation_metadata())

    def peer(self) -> str:
        peer: str = self._context.peer()
        return peer

    def time_remaining(self) -> float | None:
        """Return None: the deadline is unknown."""
        return None

    def code(self) -> grpc.StatusCode | None:
        code: grpc.StatusCode | None = self._context.code()
        return code

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._context.set_trailing_metadata([*metadata])

    async def abort(
        self, code: grpc.StatusCode, details: str = "", metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> NoReturn:
        """End the call with a status. Raises AbortError: always."""
        self._context.set_code(code)
        self._context.set_details(details)
        self.set_trailing_metadata(metadata)
        raise aio.AbortError


@dataclass(frozen=True, slots=True)
class SerializedResponse:
    """A response that is already serialized."""

    message: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 Ray calls it, as for a message
        """Return the bytes."""
        return self.message


class EndOfStream:
    """The end of a stream whose context has an error status: the caller receives no message, but the context's trailers.

    An exception would end the stream with the status, but without the trailers and thus without the error details.
    """

    def SerializeToString(self) -> Any:  # noqa: N802
        """Return what Ray's proxy takes for the end of a stream and does not send."""
        from ray.serve._private.proxy_request_response import ResponseStatus  # noqa: PLC0415 internal to Ray

        return ResponseStatus(code=grpc.StatusCode.OK)  # the status of the context takes precedence


class DirectTransport:
    """Takes the place of a gRPC server: it has the same handlers, but no port."""

    def __init__(self, routes: Router) -> None:
        self._routes = routes

    async def start(self) -> None:
        """Do nothing: Ray's proxy listens."""

    async def stop(self, grace: float | None) -> None:
        """Do nothing: Ray's proxy stops first."""

    def handler(self, path: str) -> Handler:
        """Return the handler of a method, from bytes to bytes."""
        return self._routes.handler(path)


class PortlessServer(Server):
    """A complete server without a port of its own."""

    transport: DirectTransport

    def _make_server(self, routes: Router) -> Any:
        self.transport = DirectTransport(routes)
        return self.transport

    def _bind(self) -> None:
        """Do nothing: Ray's proxies have the ports."""


class Replica:
    """A replica with one method for each of METHODS, which Ray finds by name; they are added below."""

    async def __init__(self, options: ReplicaOptions) -> None:  # type: ignore[misc]  # Ray awaits it
        self.server = PortlessServer(options.server_options(*_assigned()))
        await self.server.start()

    async def check_health(self) -> None:
        """Raise if the replica cannot work; Ray replaces it after a few failures.

        Raises:
            UnavailableError: no model is loaded.
        """
        if not self.server.registry.ready:
            raise UnavailableError("no model is loaded")

    async def __del__(self) -> None:
        """Shut down; Ray awaits it when no requests are left, or the time to drain is over."""
        self.server.stop()
        await self.server.wait()


def _assigned() -> tuple[float, float]:
    """Return the CPUs and GPUs that Ray assigns to this replica."""
    import ray  # noqa: PLC0415 only on a cluster

    resources: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return resources.get("CPU", 1.0), resources.get("GPU", 0.0)


def _entry_point(path: str, streams: bool) -> Callable[..., Any]:
    """Make the method that Ray calls; Ray looks for the name `grpc_context`, and whether it is a generator."""

    async def answer(self: Replica, request: bytes, grpc_context: RayServegRPCContext) -> SerializedResponse:
        handler: Any = self.server.transport.handler(path)
        try:
            return SerializedResponse(await handler.unary_unary(request, RayContext(grpc_context)))
        except aio.AbortError:  # the context has the status
            return SerializedResponse(b"")

    async def stream(
        self: Replica, request: Any, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[SerializedResponse | EndOfStream]:
        handler = self.server.transport.handler(path)
        behaviour: Any = handler.stream_stream or handler.unary_stream  # for a stream of requests, or one
        try:
            async for response in behaviour(request, RayContext(grpc_context)):
                yield SerializedResponse(response)
        except aio.AbortError:
            yield EndOfStream()

    return stream if streams else answer


for each in METHODS:
    setattr(Replica, each.name, _entry_point(path_of(each), each.server_streaming))
