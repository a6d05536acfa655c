"""Errors on their way out: one interceptor gives every failure its status, its rich details and its request id."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import aio

from triptych_serving.errors import InvalidInputError, OverloadedError, ServingError, UnavailableError
from triptych_serving.servicers.calls import ActiveCalls, Incoming

logger = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
MAX_REQUEST_ID = 128  # characters of a caller's id that are kept
MAX_MESSAGE = 1_000  # bytes; it travels three times, encoded, in trailers of which clients take 8 KiB
DOMAIN = "triptych"

Context = aio.ServicerContext[Any, Any]
Parse = Callable[[bytes], Any]


# Of the call that is being handled.
request_id_now: ContextVar[str] = ContextVar("request_id_now")


class StatusInterceptor(aio.ServerInterceptor):
    """Wraps every handler, and has it parse its request: gRPC itself would answer broken bytes with UNKNOWN.

    Args:
        calls: counts what the wrapped handlers do.
    """

    def __init__(self, calls: ActiveCalls) -> None:
        self._calls = calls

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        parse, serialize = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, parse, self._calls), None, serialize)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream, parse, self._calls), None, serialize)
        if handler.stream_stream:
            return grpc.stream_stream_rpc_method_handler(_both(handler.stream_stream, parse, self._calls), None, serialize)
        return handler


# The types of RpcMethodHandler know synchronous handlers only, hence Any for what these give back.


def _unary(behaviour: Callable[..., Any], parse: Parse, calls: ActiveCalls) -> Callable[..., Any]:
    async def handle(request: bytes, context: Context) -> Any:
        request_id = _identify(context)
        try:
            with calls:
                return await behaviour(_parsed(request, parse), context)
        except Exception as error:
            await _abort(context, error, request_id)

    return handle


def _stream(behaviour: Callable[..., Any], parse: Parse, calls: ActiveCalls) -> Callable[..., Any]:
    async def handle(request: bytes, context: Context) -> AsyncIterator[Any]:
        request_id = _identify(context)
        try:
            with calls:
                async for response in behaviour(_parsed(request, parse), context):
                    yield response
        except Exception as error:
            await _abort(context, error, request_id)

    return handle


def _both(behaviour: Callable[..., Any], parse: Parse, calls: ActiveCalls) -> Callable[..., Any]:
    async def handle(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
        request_id = _identify(context)
        try:
            with calls:
                incoming = Incoming(requests, calls.stopping)
                async for response in behaviour((_parsed(request, parse) async for request in incoming), context):
                    yield response
                if incoming.cut_off:
                    raise UnavailableError("the server is shutting down")
        except Exception as error:
            await _abort(context, error, request_id)

    return handle


def _identify(context: Context) -> str:
    """The call's request id, which goes back to the caller."""
    request_id = request_id_of(context)
    request_id_now.set(request_id)
    context.set_trailing_metadata(((REQUEST_ID, request_id),))
    return request_id


def _parsed(request: bytes, parse: Parse) -> Any:
    try:
        return parse(request)
    except DecodeError as error:
        raise InvalidInputError("request", "it is not the message that this call takes; strings must be UTF-8") from error


def request_id_of(context: Context) -> str:
    """The caller's x-request-id, or a new one."""
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID and isinstance(value, str) and value:
            return value[:MAX_REQUEST_ID]
    return uuid.uuid4().hex


async def _abort(context: Context, error: Exception, request_id: str) -> NoReturn:
    if isinstance(error, aio.AbortError):
        raise error  # a handler has aborted already
    shown = public_error(error, request_id)
    status = status_of(shown, request_id)
    metadata = ((REQUEST_ID, request_id), ("grpc-status-details-bin", status.SerializeToString()))
    await context.abort(grpc.StatusCode[shown.status], status.message, metadata)
    raise AssertionError("abort returns never")


def public_error(error: BaseException, request_id: str) -> ServingError:
    """What the caller may know of an error; one that nobody foresaw is logged."""
    if isinstance(error, ServingError):
        return error
    logger.error("request %s failed: %s", request_id, error, exc_info=error)
    return ServingError("internal error; the server's log has more under this request id")


def status_of(error: ServingError, request_id: str) -> status_pb2.Status:
    """google.rpc.Status with ErrorInfo, BadRequest, RetryInfo and RequestInfo as they apply."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=_reason(error), domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=request_id),
    ]
    if isinstance(error, InvalidInputError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=_short(error.problem))
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, OverloadedError):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(error.retry_after_seconds * 1000))
        details.append(retry)
    status = status_pb2.Status(code=code_pb2.Code.Value(error.status), message=_short(str(error)))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _short(message: str) -> str:
    """One line of at most MAX_MESSAGE bytes."""
    line = " ".join(message.split())
    cut = line.encode()[:MAX_MESSAGE].decode(errors="ignore")
    return cut if cut == line else f"{cut}..."


def _reason(error: ServingError) -> str:
    """`InvalidInputError` -> `INVALID_INPUT`."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()
