"""Dispatch of gRPC calls: each gets a call context, passes the guards, is parsed, and ends with a status and its details."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, Self, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from triptych_serving.errors import InvalidInputError, UnavailableError
from triptych_serving.rpc.active_calls import ActiveCalls, ModelLeases
from triptych_serving.rpc.call_context import (
    CallContext,
    GrpcContext,
    Guard,
    Metadata,
    MethodType,
    Observers,
    current_call,
)
from triptych_serving.rpc.descriptors import DESCRIPTORS
from triptych_serving.rpc.limits import BINARY, DOCUMENT_ELEMENTS, DOCUMENTS, MessageLimit
from triptych_serving.rpc.status import DETAILS, REQUEST_ID, public_error, status_of
from triptych_serving.rpc.wire import join, lists_of
from triptych_serving.runtime.process import forget_frames

MAX_REQUEST_ID = 128  # characters of a caller's id that are kept
# Bytes of a request that is parsed in the event loop; many short texts take a microsecond for each two or three bytes.
PARSED_INLINE, BINARY_INLINE = 1 << 16, 1 << 20
JOINED_INLINE = 1 << 20  # bytes of a response; to join 60 MB takes 50 to 250 ms, mostly for the first use of their memory
CANCELLATION_SECONDS = 0.001  # without this pause 6 to 10 % of cancelled streams were taken for complete ones

_ids = random.Random()  # for request ids: unique, but not secret, which would cost a system call each

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

# Exceptions that end a handler from outside. All others must become a status, also those that are no Exception.
OUTSIDE = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


@dataclass(frozen=True)
class CallEnvironment:
    """The parts of a server that every call uses."""

    calls: ActiveCalls
    leases: ModelLeases = field(default_factory=ModelLeases)
    guards: Sequence[Guard] = ()
    observers: Observers = field(default_factory=Observers)
    message_limit: MessageLimit = field(default_factory=MessageLimit)


class Router(grpc.GenericRpcHandler):
    """The handlers of all methods, each wrapped once; an interceptor would wrap them again for every call.

    Services are added to it as to a `grpc.aio.Server`.
    """

    def __init__(self, environment: CallEnvironment) -> None:
        self._environment = environment
        self._handlers: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Add the methods of a service, by name."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = _Method(service, name, handler, self._environment).wrapped

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Ignore the same handlers; generated code registers them both ways."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        return self._handlers.get(str(handler_call_details.method))

    def handler(self, path: str) -> Handler:
        """Return the handler of an existing method, such as "/triptych.v1.TranslationService/Translate"."""
        return self._handlers[path]


class _Method:
    """The handler of one method, from bytes to bytes: gRPC itself would reject malformed bytes with UNKNOWN."""

    def __init__(self, service: str, name: str, handler: Handler, environment: CallEnvironment) -> None:
        self._service, self._name = service, name
        self._handler = handler
        # The type stubs of RpcMethodHandler know synchronous handlers only, hence Any.
        self._behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_stream
        self._parse: Any = handler.request_deserializer or bytes
        self._serialize: Any = handler.response_serializer or bytes
        is_document = f"{service}/{name}" == DOCUMENTS  # its size is limited in other ways
        self._has_texts = service not in BINARY and not is_document
        descriptor = DESCRIPTORS.FindServiceByName(service).methods_by_name[name].input_type
        self._lists = lists_of(descriptor)
        self._most_elements = DOCUMENT_ELEMENTS if is_document else None
        self._inline = PARSED_INLINE if self._has_texts else BINARY_INLINE
        self._method_type: MethodType = (
            "unary" if handler.unary_unary else "server_stream" if handler.unary_stream else "bidi_stream"
        )
        guards = [guard for guard in environment.guards if guard.concerns(service, name, self._method_type)]
        self._environment = replace(environment, guards=guards)

    @property
    def wrapped(self) -> Handler:
        """The wrapped handler. No service has a method with a stream of requests and one response."""
        if self._handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self.unary)
        if self._handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self.stream)
        return grpc.stream_stream_rpc_method_handler(self.stream)

    async def unary(self, request: bytes, context: GrpcContext) -> Any:
        call = self._begin(context)
        try:
            with _CallScope(call, context, self._environment) as scope:
                scope.admit()
                # Small messages are converted here and now: a coroutine for each would cost every call.
                argument = self._check_and_parse(request) if len(request) <= self._inline else await self._parse_async(request)
                response = await self._behaviour(argument, context)
                packed = self._packed(response)
                return packed if isinstance(packed, bytes) else await packed
        except OUTSIDE:
            raise
        except BaseException as error:
            del request  # as for `forget_frames` below
            await _abort(context, error, call.request_id)

    async def stream(self, request: Any, context: GrpcContext) -> AsyncIterator[Any]:
        """Handle a stream of responses; `request` is one message or a stream of them."""
        call = self._begin(context)
        try:
            with _CallScope(call, context, self._environment) as scope:
                scope.admit()
                argument = self._incoming(request) if self._handler.stream_stream else await self._parse_async(request)
                async with aclosing(self._behaviour(argument, context)) as responses:
                    async for response in responses:
                        packed = self._packed(response)
                        yield packed if isinstance(packed, bytes) else await packed
        except OUTSIDE:
            raise
        except BaseException as error:
            del request  # as for `forget_frames` below
            await _abort(context, error, call.request_id)

    async def _incoming(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Yield parsed requests until the caller ends its stream.

        Raises:
            UnavailableError: the server is shutting down; the stream must not be taken for a complete one.
        """
        source = aiter(requests)
        stop = asyncio.create_task(self._environment.calls.rejecting.wait())
        try:
            while True:
                read = asyncio.ensure_future(anext(source, None))
                await asyncio.wait((read, stop), return_when=asyncio.FIRST_COMPLETED)
                if not read.done():
                    raise UnavailableError("the server is shutting down")
                if (request := read.result()) is None:
                    # A cancelled stream ends like a complete one; gRPC reports the cancellation a moment later.
                    await asyncio.sleep(CANCELLATION_SECONDS)
                    return
                yield await self._parse_async(request)
        finally:
            stop.cancel()
            read.cancel()

    def _begin(self, context: GrpcContext) -> CallContext:
        """Create the call context, and return the request id to the caller however the call ends."""
        metadata = dict(context.invocation_metadata() or ())
        request_id = request_id_of(metadata)
        environment = self._environment
        call = CallContext(
            self._service,
            self._name,
            self._method_type,
            request_id,
            context.peer(),
            metadata,
            environment.leases,
            environment.observers,
        )
        current_call.set(call)
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        return call

    async def _parse_async(self, request: bytes) -> Any:
        """Check and parse a request: a large one in a thread."""
        if len(request) <= self._inline:
            return self._check_and_parse(request)
        return await asyncio.to_thread(self._check_and_parse, request)

    def _check_and_parse(self, request: bytes) -> Any:
        limit = self._environment.message_limit
        limit.check_request(len(request), self._has_texts)
        limit.check_elements(request, self._lists, self._most_elements)
        try:
            return self._parse(request)
        except DecodeError as error:
            problem = "not a valid message of this method's request type; strings must be UTF-8"
            raise InvalidInputError("request", problem) from error

    def _packed(self, response: Any) -> bytes | Awaitable[bytes]:
        """Serialize a response, and join one that comes in parts: a large one in a thread, to be awaited."""
        if not isinstance(response, list):
            response = [response if isinstance(response, bytes) else self._serialize(response)]
        size = sum(map(len, response))
        self._environment.message_limit.check_response(size)
        if len(response) == 1 or size <= JOINED_INLINE:
            return b"".join(response)
        return asyncio.to_thread(join, response)


class _CallScope:
    """Context manager around a call's handler. A class, because a generator would cost time in every call."""

    def __init__(self, call: CallContext, context: GrpcContext, environment: CallEnvironment) -> None:
        self._call, self._context, self._environment = call, context, environment
        self._admitted = False
        self._exits: ExitStack | None = None  # None: no guard is waiting for the end of the call

    def __enter__(self) -> Self:
        self._environment.observers.on_start(self._call)
        return self

    def admit(self) -> None:
        """Count the call as in progress, then ask all guards. Raises ServingError: a guard rejects the call."""
        self._environment.calls.begin()
        self._admitted = True
        for guard in self._environment.guards:
            if (admitted := guard.admit(self._call, self._context)) is not None:
                self._exits = self._exits or ExitStack()
                self._exits.enter_context(admitted)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        call = self._call
        try:
            if self._exits is not None:
                self._exits.__exit__(kind, error, trace)
        finally:
            if self._admitted:
                self._environment.calls.end()
            call.error, call.code = error, "OK" if error is None else _code_of(error, self._context)
            call.ended = monotonic()
            self._environment.observers.on_end(call)
            call.error = None  # its frames refer to the call: such a cycle would keep the request until it is collected


def request_id_of(metadata: Metadata) -> str:
    """Return the caller's x-request-id, or a new one."""
    given = metadata.get(REQUEST_ID)
    usable = isinstance(given, str) and given and given.isascii() and given.isprintable()  # others cannot be sent back
    return str(given)[:MAX_REQUEST_ID] if usable else f"{_ids.getrandbits(128):032x}"


def _code_of(error: BaseException, context: GrpcContext) -> str:
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        left = context.time_remaining()
        return "DEADLINE_EXCEEDED" if left is not None and left <= 0 else "CANCELLED"
    if isinstance(error, aio.AbortError):
        return str(getattr(context.code(), "name", "UNKNOWN"))
    return str(getattr(error, "status", "INTERNAL"))


async def _abort(context: GrpcContext, error: BaseException, request_id: str) -> NoReturn:
    if isinstance(error, aio.AbortError):
        raise error  # a handler has aborted already
    shown = public_error(error, request_id)
    forget_frames(error)  # gRPC keeps an aborted call until its cycles are collected: without the request
    status = status_of(shown, request_id)
    metadata = ((REQUEST_ID, request_id), (DETAILS, status.SerializeToString()))
    await context.abort(grpc.StatusCode[shown.status], status.message, metadata)
    raise AssertionError("abort never returns")
