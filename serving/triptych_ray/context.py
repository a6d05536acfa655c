"""Adapters between Ray's proxies and the gRPC handlers: the context of a call, and its responses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from grpc import aio

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

    def auth_context(self) -> dict[str, Any]:
        properties: dict[str, Any] = self._context.auth_context()
        return properties

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
