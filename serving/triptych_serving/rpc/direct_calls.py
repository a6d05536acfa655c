"""Calls of gRPC methods within this process, for requests that arrive over another protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NoReturn, Self

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import aio

from triptych_serving.rpc.dispatch import Handler, Router
from triptych_serving.rpc.status import DETAILS


class RpcError(Exception):
    """A call ended with a status other than OK; `status` has code, message and details."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status

    @classmethod
    def of(cls, code: grpc.StatusCode, message: str) -> Self:
        """Make an error without details."""
        sendable = message.encode(errors="replace").decode()  # it may quote half a surrogate pair
        return cls(status_pb2.Status(code=code.value[0], message=sendable))

    def with_message(self, message: str) -> RpcError:
        """Return this error with another text for the caller."""
        status = status_pb2.Status(code=self.status.code, message=message, details=self.status.details)
        return type(self)(status)

    @property
    def code(self) -> grpc.StatusCode:
        """The status code."""
        return _CODES[self.status.code]

    @property
    def message(self) -> str:
        """The text for the caller."""
        return str(self.status.message)

    @property
    def retry_seconds(self) -> float | None:
        """Time after which the caller may try again; None if the status says nothing about it."""
        retry = error_details_pb2.RetryInfo()
        for detail in self.status.details:
            if detail.Unpack(retry):
                delay: Duration = retry.retry_delay
                return delay.ToTimedelta().total_seconds()
        return None


class DirectContext:
    """The part of `grpc.aio.ServicerContext` that handlers use.

    Args:
        peer: in gRPC's notation: "ipv4:1.2.3.4:567".
        metadata: keys in lower case.
        identities: names in the client's verified certificate.
        deadline: time until which the response is wanted, monotonic seconds.
        needs_key: the call is rejected without an API key, where keys are required.
    """

    def __init__(
        self,
        peer: str,
        metadata: Mapping[str, str],
        identities: tuple[bytes, ...] = (),
        deadline: float | None = None,
        needs_key: bool = True,
    ) -> None:
        self._peer, self._metadata, self._identities, self._deadline = peer, metadata, identities, deadline
        self.needs_key = needs_key
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailers: dict[str, str | bytes] = {}

    @asynccontextmanager
    async def raising_rpc_errors(self) -> AsyncIterator[None]:
        """Enforce the deadline, and raise RpcError if it passes or the call is aborted."""
        left = self.time_remaining()
        try:
            async with asyncio.timeout(left):
                yield
        except aio.AbortError:
            packed = self._trailers.get(DETAILS)
            status = status_pb2.Status.FromString(packed) if isinstance(packed, bytes) else status_pb2.Status()
            status.code, status.message = (self._code or grpc.StatusCode.UNKNOWN).value[0], self._details
            raise RpcError(status) from None
        except TimeoutError:
            raise RpcError.of(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed") from None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._metadata.items())

    def peer(self) -> str:
        return self._peer

    def peer_identities(self) -> tuple[bytes, ...]:
        return self._identities

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def code(self) -> grpc.StatusCode | None:
        return self._code

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._trailers = dict(metadata)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> NoReturn:
        """End the call with a status. Raises AbortError: always."""
        self._code, self._details = code, details
        self.set_trailing_metadata(metadata)
        raise aio.AbortError


async def call_unary(router: Router, path: str, request: Message, response: Message, context: DirectContext) -> None:
    """Call a method with one response, which is written into `response`, with all guards and observers.

    Args:
        path: such as "/triptych.v1.TranslationService/Translate".
        request: a message of the method's request type.
        response: an empty message of the method's response type.

    Raises:
        RpcError: the call ended with another status than OK.
    """
    behaviour: Any = router.handler(path).unary_unary
    async with context.raising_rpc_errors():
        response.ParseFromString(await behaviour(request.SerializeToString(), context))


async def call_stream(
    router: Router, path: str, requests: Message | AsyncIterator[Message], response: type[Any], context: DirectContext
) -> AsyncGenerator[Any]:
    """Call a method with a stream of responses; arguments and errors as `call_unary`."""
    handler: Handler = router.handler(path)
    behaviour: Any = handler.unary_stream or handler.stream_stream
    argument = requests.SerializeToString() if isinstance(requests, Message) else _serialized(requests)
    async with aclosing(behaviour(argument, context)) as responses:
        while True:
            async with context.raising_rpc_errors():  # for each response: another task may wait for the next one
                message = await anext(responses, None)
            if message is None:
                return
            yield response.FromString(message)


_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def _serialized(messages: AsyncIterator[Message]) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message.SerializeToString()
