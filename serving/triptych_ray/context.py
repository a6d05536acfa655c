"""A call that came through Ray's proxy, with the face of gRPC's own context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from grpc import aio

if TYPE_CHECKING:
    from ray.serve.grpc_util import RayServegRPCContext


class RayContext:
    """What handlers ask of a `grpc.aio.ServicerContext`.

    Ray's proxy does not pass a deadline on: it cancels the call when the deadline passes.
    """

    def __init__(self, context: RayServegRPCContext) -> None:
        self._context = context

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return tuple(self._context.invocation_metadata())

    def peer(self) -> str:
        peer: str = self._context.peer()
        return peer

    def auth_context(self) -> dict[str, Any]:
        properties: dict[str, Any] = self._context.auth_context()
        return properties

    def time_remaining(self) -> float | None:
        """Unknown."""
        return None

    def code(self) -> grpc.StatusCode | None:
        code: grpc.StatusCode | None = self._context.code()
        return code

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._context.set_trailing_metadata([*metadata])

    async def abort(
        self, code: grpc.StatusCode, details: str = "", metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> NoReturn:
        """End the call.

        Raises:
            AbortError: always.
        """
        self._context.set_code(code)
        self._context.set_details(details)
        self.set_trailing_metadata(metadata)
        raise aio.AbortError
