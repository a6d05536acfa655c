"""Routes of the gateway: a function for each, and how an API reports errors."""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triptych_serving.gateway.call import GatewayParts, HttpCall, TooLargeBodyError
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.status import REQUEST_ID

logger = logging.getLogger(__name__)

# As the Connect protocol defines them; 500 for others. See also `http_status`.
HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
ALL_ROUTES = "GET /openapi.json describes all routes"
NO_ROUTE = f"there is no such route; {ALL_ROUTES}"
INTERNAL = RpcError.of(grpc.StatusCode.INTERNAL, "internal error; the server's log has the details")
STOPPING = RpcError.of(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")

OPTIONS = "options."
NAME = re.compile(r"[a-z_.]+")

Function = Callable[[HttpCall], Awaitable[Response | Mapping[str, Any] | list[Any]]]
ErrorBody = Callable[[RpcError, int], Mapping[str, Any]]


@dataclass(frozen=True)
class ApiRoute:
    """One route of an API."""

    path: str  # in starlette's notation
    function: Function  # a mapping or list that it returns is sent as JSON
    methods: tuple[str, ...] = ("POST",)
    summary: str = ""  # for the OpenAPI document


@dataclass(frozen=True)
class Api:
    """Routes that report errors in the same way."""

    name: str
    routes: tuple[ApiRoute, ...]
    error: ErrorBody = lambda error, _: {"error": error.message}
    statuses: Mapping[int, int] = field(default_factory=dict)  # HTTP status -> the one that the API's clients expect
    names: Mapping[str, str] = field(default_factory=dict)  # gRPC's fields -> what this API calls them

    def mount(self, parts: GatewayParts) -> list[Route]:
        """Make starlette's routes."""
        return [Route(one.path, self._endpoint(one.function, parts), methods=list(one.methods)) for one in self.routes]

    def _endpoint(self, function: Function, parts: GatewayParts) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            call = HttpCall(request, parts)
            try:
                result = await function(call)
                response = result if isinstance(result, Response) else await call.respond(result)
            except ClientDisconnect:
                return Response(status_code=499)
            except RpcError as error:
                response = self._failed(error)
            except asyncio.CancelledError:  # by the port, which waits for no request any more
                response = self._failed(STOPPING)
            except Exception:
                logger.exception("gateway error: path=%s", request.url.path)
                response = self._failed(INTERNAL)
            response.headers[REQUEST_ID] = call.request_id
            return response

        return endpoint

    def _failed(self, error: RpcError) -> Response:
        status = http_status(error)
        status = self.statuses.get(status, status)
        response = JSONResponse(self.error(renamed(error, self.names), status), status)
        if (seconds := error.retry_seconds) is not None:
            response.headers["retry-after"] = str(math.ceil(seconds))
        if status == 401:
            response.headers["www-authenticate"] = "Bearer"
        if isinstance(error, TooLargeBodyError):
            response.headers["connection"] = "close"  # the rest of the body is not read
        return response


def http_status(error: RpcError) -> int:
    """Return the HTTP status of an error. What is too large has another one than too many requests, which clients retry."""
    too_large = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_seconds is None
    return 413 if too_large else HTTP_STATUS.get(error.code, 500)


def renamed(error: RpcError, names: Mapping[str, str]) -> RpcError:
    """Return an error with other names for fields: for the one that its message begins with, and for options further on.

    The name of a field is also that of its members.
    """

    def name(found: re.Match[str]) -> str:
        field = OPTIONS + found[0].removeprefix(OPTIONS) if found.start() else found[0]
        outer, dot, member = field.partition(".")
        return names.get(field) or (f"{names[outer]}{dot}{member}" if outer in names else found[0])

    return error.with_message(NAME.sub(name, error.message))


def stream_error(error: Exception | asyncio.CancelledError) -> RpcError:
    """Return what a stream reports at its end, where an HTTP status cannot be sent any more; logs unexpected errors."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, asyncio.CancelledError):  # by the port, or because the client is gone
        return STOPPING
    logger.error("gateway error: stream", exc_info=error)
    return INTERNAL
