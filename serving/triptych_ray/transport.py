"""What takes the place of a gRPC server in a replica: the same handlers and interceptor, and no port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from grpc import aio

from triptych_ray.methods import Handler


@dataclass(frozen=True)
class Details:
    """A `grpc.HandlerCallDetails`."""

    method: str
    invocation_metadata: Iterable[tuple[str, str | bytes]]


class Transport:
    """Takes services as a `grpc.aio.Server` does, and hands out what handles a call.

    Args:
        interceptor: wraps every handler.
    """

    def __init__(self, interceptor: aio.ServerInterceptor) -> None:
        self._interceptor = interceptor
        self._handlers: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Of one service."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """The same handlers once more; stubs of today register them both ways."""

    async def start(self) -> None:
        """Ray's proxy listens."""

    async def stop(self, grace: float | None) -> None:
        """Ray's proxy stops first."""

    async def handler(self, path: str, metadata: Iterable[tuple[str, str | bytes]]) -> Any:
        """Of one call, from bytes to bytes."""

        async def registered(_: Any) -> Handler:
            return self._handlers[path]

        details: Any = Details(path, metadata)
        return await self._interceptor.intercept_service(registered, details)
