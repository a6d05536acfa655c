"""What every call goes through: it becomes an Rpc, passes the guards, is parsed, and ends with a status and details."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, Self, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from triptych_serving.errors import InvalidInputError, UnavailableError
from triptych_serving.rpc.active_calls import ActiveCalls, Incoming
from triptych_serving.rpc.call_context import Context, Guard, Kind, Metadata, Observers, Rpc, rpc_now
from triptych_serving.rpc.leases import Leases
from triptych_serving.rpc.status import DETAILS, REQUEST_ID, public_error, status_of

MAX_REQUEST_ID = 128  # characters of a caller's id that are kept

_ids = random.Random()  # of calls that bring none: unique, but no secrets, which would cost a system call each

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

# What ends a handler from outside. All else is its own, and must become a status: a library's panic is no Exception.
OUTSIDE = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class MessageSizes:
    """What bounds messages; this one does not."""

    def check_request(self, size: int) -> None:
        """Of so many bytes.

        Raises:
            ServingError: too large.
        """

    def check_response(self, size: int) -> None:
        """Of so many bytes.

        Raises:
            ServingError: too large.
        """


@dataclass(frozen=True)
class Surroundings:
    """What every call is handled in."""

    calls: ActiveCalls
    leases: Leases = field(default_factory=Leases)
    guards: Sequence[Guard] = ()
    observers: Observers = field(default_factory=Observers)
    sizes: MessageSizes = field(default_factory=MessageSizes)


class Routes(grpc.GenericRpcHandler):
    """The handlers of all methods, each wrapped once: an interceptor would wrap them anew for every call.

    Takes services as a `grpc.aio.Server` does.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._handlers: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Of one service, by the methods' names."""
        for name, handler in handlers.items():
            wrapped = _Method(service, name, handler, self._surroundings).wrapped
            if wrapped is not None:  # unwrapped, it would pass no guard
                self._handlers[f"/{service}/{name}"] = wrapped

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """The same handlers once more; stubs register them both ways."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        return self._handlers.get(str(handler_call_details.method))

    def handler(self, path: str) -> Handler:
        """Of a method that is there, such as "/triptych.v1.TranslationService/Translate"."""
        return self._handlers[path]


class _Method:
    """One method's handler, bytes to bytes: gRPC itself would answer broken bytes with UNKNOWN."""

    def __init__(self, service: str, name: str, handler: Handler, surroundings: Surroundings) -> None:
        self._service, self._name = service, name
        self._handler = handler
        # The types of RpcMethodHandler know synchronous handlers only, hence Any.
        self._behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_stream
        self._parse: Any = handler.request_deserializer or bytes
        self._serialize: Any = handler.response_serializer or bytes
        self._around = surroundings

    @property
    def wrapped(self) -> Handler | None:
        """None for a kind of method that nothing here has."""
        if self._handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self.unary)
        if self._handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self.stream)
        if self._handler.stream_stream:
            return grpc.stream_stream_rpc_method_handler(self.both)
        return None

    async def unary(self, request: bytes, context: Context) -> Any:
        rpc = self._begin("unary", context)
        try:
            with _Handling(rpc, context, self._around) as handling:
                handling.admit()
                return self._packed(await self._behaviour(self._parsed(request), context))
        except OUTSIDE:
            raise
        except BaseException as error:
            await _abort(context, error, rpc.request_id)

    async def stream(self, request: bytes, context: Context) -> AsyncIterator[Any]:
        rpc = self._begin("server_stream", context)
        try:
            with _Handling(rpc, context, self._around) as handling:
                handling.admit()
                async with aclosing(self._behaviour(self._parsed(request), context)) as responses:
                    async for response in responses:
                        yield self._packed(response)
        except OUTSIDE:
            raise
        except BaseException as error:
            await _abort(context, error, rpc.request_id)

    async def both(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
        rpc = self._begin("bidi_stream", context)
        try:
            with _Handling(rpc, context, self._around) as handling:
                handling.admit()
                async with aclosing(self._behaviour(self._incoming(requests), context)) as responses:
                    async for response in responses:
                        yield self._packed(response)
        except OUTSIDE:
            raise
        except BaseException as error:
            await _abort(context, error, rpc.request_id)

    async def _incoming(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Messages. Whoever reads them must not take a stream that was cut off for one that is complete."""
        incoming = Incoming(requests, self._around.calls.stopping)
        async for request in incoming:
            yield self._parsed(request)
        if incoming.cut_off:
            raise UnavailableError("the server is shutting down")

    def _begin(self, kind: Kind, context: Context) -> Rpc:
        """The caller gets its request id back, however the call ends."""
        metadata = dict(context.invocation_metadata() or ())
        request_id = request_id_of(metadata)
        around = self._around
        rpc = Rpc(self._service, self._name, kind, request_id, context.peer(), metadata, around.leases, around.observers)
        rpc_now.set(rpc)
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        return rpc

    def _parsed(self, request: bytes) -> Any:
        self._around.sizes.check_request(len(request))
        try:
            return self._parse(request)
        except DecodeError as error:
            raise InvalidInputError("request", "it is not the message that this call takes; strings must be UTF-8") from error

    def _packed(self, response: Any) -> bytes:
        message: bytes = self._serialize(response)
        self._around.sizes.check_response(len(message))
        return message


class _Handling:
    """What is done before and behind a call. A class, since generators as context managers cost every call some time."""

    def __init__(self, rpc: Rpc, context: Context, around: Surroundings) -> None:
        self._rpc, self._context, self._around = rpc, context, around
        self._admitted = False
        self._guarded: ExitStack | None = None  # None: no guard is to be told of the end

    def __enter__(self) -> Self:
        self._around.observers.on_start(self._rpc)
        return self

    def admit(self) -> None:
        """Let the call pass.

        Raises:
            ServingError: a guard refuses it.
        """
        self._around.calls.begin()
        self._admitted = True
        for guard in self._around.guards:
            if (admitted := guard.admit(self._rpc, self._context)) is not None:
                self._guarded = self._guarded or ExitStack()
                self._guarded.enter_context(admitted)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        rpc = self._rpc
        try:
            if self._guarded is not None:
                self._guarded.__exit__(kind, error, trace)
        finally:
            if self._admitted:
                self._around.calls.end()
            rpc.error, rpc.code = error, "OK" if error is None else _code_of(error, self._context)
            rpc.ended = monotonic()
            self._around.observers.on_end(rpc)


def request_id_of(metadata: Metadata) -> str:
    """The caller's x-request-id, or a new one."""
    given = metadata.get(REQUEST_ID)
    return given[:MAX_REQUEST_ID] if isinstance(given, str) and given else f"{_ids.getrandbits(128):032x}"


def _code_of(error: BaseException, context: Context) -> str:
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        left = context.time_remaining()
        return "DEADLINE_EXCEEDED" if left is not None and left <= 0 else "CANCELLED"
    if isinstance(error, aio.AbortError):
        return str(getattr(context.code(), "name", "UNKNOWN"))
    return str(getattr(error, "status", "INTERNAL"))


async def _abort(context: Context, error: BaseException, request_id: str) -> NoReturn:
    if isinstance(error, aio.AbortError):
        raise error  # a handler has aborted already
    shown = public_error(error, request_id)
    status = status_of(shown, request_id)
    metadata = ((REQUEST_ID, request_id), (DETAILS, status.SerializeToString()))
    await context.abort(grpc.StatusCode[shown.status], status.message, metadata)
    raise AssertionError("abort returns never")
