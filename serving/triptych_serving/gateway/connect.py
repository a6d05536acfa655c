"""The Connect protocol: every gRPC method as `POST /package.Service/Method`, with JSON or binary messages.

Methods with one response, and those with a stream of responses to one request. See https://connectrpc.com/docs/protocol.
"""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from starlette.responses import Response, StreamingResponse

from triptych_serving.errors import InvalidInputError
from triptych_serving.gateway.call import HttpCall, TooLargeBodyError, check_json, invalid, parse_object
from triptych_serving.gateway.messages import fault_in, to_dict, to_json
from triptych_serving.gateway.route import Api, ApiRoute, stream_error
from triptych_serving.rpc.descriptors import ALL_SERVICES, DESCRIPTORS
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.limits import BINARY, MessageLimit
from triptych_serving.rpc.status import REQUEST_ID
from triptych_serving.rpc.wire import lists_of
from triptych_serving.services.health import HEALTH_SERVICE

ENVELOPE = struct.Struct(">BI")  # flags and length of a message of a stream
COMPRESSED, END = 1, 2
TYPE_PREFIX = "type.googleapis.com/"
SERVICES = (*ALL_SERVICES, HEALTH_SERVICE)


def parse(codec: str, data: bytes, message: Any, limit: MessageLimit, tokens: int) -> None:
    """Parse bytes into an empty message, if they are not many elements, which would take much more memory.

    Args:
        codec: "json" or "proto".
        message: is filled.
        limit: has the elements of each list of "proto".
        tokens: strings and separators of "json".

    Raises:
        RpcError: they are not a message of this type, or above a limit.
    """
    try:
        if codec == "json":
            check_json(data, tokens)
            json_format.Parse(data.decode("utf-8-sig") or "{}", message, max_recursion_depth=20)
        else:
            limit.check_elements(data, lists_of(message.DESCRIPTOR))
            message.ParseFromString(data)
    except InvalidInputError as error:
        raise invalid(str(error)) from None
    except (json_format.ParseError, DecodeError, ValueError, OverflowError, RecursionError) as error:
        fault = fault_in(parse_object(data, tokens), message.DESCRIPTOR) if codec == "json" else ""
        raise invalid(fault or f"body: not a {message.DESCRIPTOR.name}: {error!s:.200}") from None


def serialize(codec: str, message: Message) -> bytes:
    """Serialize a message, as JSON in one line."""
    return to_json(to_dict(message)) if codec == "json" else message.SerializeToString()


def error_body(error: RpcError, _status: int = 0) -> dict[str, Any]:
    """Return an error as Connect's JSON: code, message, and details with their bytes, and as JSON for people who read it."""
    details = [
        {
            "type": detail.type_url.removeprefix(TYPE_PREFIX),
            "value": base64.b64encode(detail.value).decode().rstrip("="),
            "debug": {name: value for name, value in json_format.MessageToDict(detail).items() if name != "@type"},
        }
        for detail in error.status.details
    ]
    code = "canceled" if error.code is grpc.StatusCode.CANCELLED else error.code.name.lower()
    return {"code": code, "message": error.message, "details": details}


async def _call(service: str, call: HttpCall) -> Response:
    """Answer a call. Streams report every error in their end: their clients read no other body."""
    streams, codec = _codec(call.content_type)
    try:
        return await _answer(service, call, streams, codec)
    except RpcError as error:
        if not streams:
            raise
        headers = {"connection": "close"} if isinstance(error, TooLargeBodyError) else {}  # the rest of the body is not read
        return Response(_end(call.request_id, error), headers=headers, media_type=call.content_type)


async def _answer(service: str, call: HttpCall, streams: bool, codec: str) -> Response:
    """Call the method. Raises RpcError: there is none, its request cannot be read, or the call failed without a response."""
    name, kind = call.request.path_params["method"], call.content_type
    method = DESCRIPTORS.FindServiceByName(service).methods_by_name.get(name)
    if method is None:
        raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, f"method {service}/{name} is unknown")
    if method.client_streaming:
        raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, f"{service}/{name} reads a stream of requests: use gRPC")
    if streams != method.server_streaming:
        wanted = "application/connect+json" if method.server_streaming else "application/json"
        return Response(f"content-type: {service}/{name} needs {wanted}\n", 415, media_type="text/plain")
    request = GetMessageClass(method.input_type)()
    data = await call.body(None if service in BINARY else call.parts.text_bytes)
    limits = call.parts.messages, call.parts.json_tokens(service in BINARY)
    if not streams:
        await call.offload(len(data), parse, codec, data, request, *limits)
        message = await call.ask(request)
        return Response(await call.offload(message.ByteSize(), serialize, codec, message), media_type=kind)
    await call.offload(len(data), parse, codec, _only_message(data), request, *limits)
    messages = call.stream(f"/{service}/{name}", request, GetMessageClass(method.output_type))
    return StreamingResponse(_stream(messages, codec, call.request_id), media_type=kind)


async def _stream(messages: AsyncGenerator[Any], codec: str, request_id: str) -> AsyncIterator[bytes]:
    """Yield each response in its envelope, and the end of the stream with its status."""
    error: RpcError | None = None
    try:
        async with aclosing(messages):
            async for message in messages:
                yield _envelope(0, serialize(codec, message))
    except (Exception, asyncio.CancelledError) as failure:
        error = stream_error(failure)
    yield _end(request_id, error)


def _end(request_id: str, error: RpcError | None = None) -> bytes:
    """Return the end of a stream, with its status."""
    end = {} if error is None else {"error": error_body(error), "metadata": {REQUEST_ID: [request_id]}}
    return _envelope(END, json.dumps(end, ensure_ascii=False).encode())


def _envelope(flags: int, data: bytes) -> bytes:
    return ENVELOPE.pack(flags, len(data)) + data


def _only_message(data: bytes) -> bytes:
    """Take the one message of a request's body out of its envelope."""
    if len(data) < ENVELOPE.size:
        raise invalid("body: no message")
    flags, length = ENVELOPE.unpack_from(data)
    if flags & COMPRESSED:
        raise RpcError.of(grpc.StatusCode.UNIMPLEMENTED, "body: compressed messages are not supported")
    if length != len(data) - ENVELOPE.size:
        raise invalid(f"body: {len(data) - ENVELOPE.size:,} bytes after an envelope for {length:,}; one message is expected")
    return data[ENVELOPE.size :]


def _codec(kind: str) -> tuple[bool, str]:
    """Return whether a content type is that of streams, and its codec."""
    name = kind.removeprefix("application/")
    streams = name.startswith("connect+")
    name = name.removeprefix("connect+")
    if not kind.startswith("application/") or name not in ("json", "proto"):
        raise invalid(f"content-type: {kind[:80]!r} is not application/json, application/proto or application/connect+json")
    return streams, name


API = Api("Connect", tuple(ApiRoute(f"/{name}/{{method}}", partial(_call, name)) for name in SERVICES), error_body)
