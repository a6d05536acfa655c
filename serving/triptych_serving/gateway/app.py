"""The ASGI application: routes of several APIs, headers of every response, and rules for pages of other origins."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triptych_serving.gateway.call import GatewayParts
from triptych_serving.gateway.route import ALL_ROUTES, NO_ROUTE, Api

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
CORS_SECONDS = 600  # for which browsers remember what is allowed
OWN_NAMES = (".localhost", ".local", ".internal")  # ends of names that no page of the internet can have


def make_application(apis: Sequence[Api], parts: GatewayParts, origins: Sequence[str], is_local: bool = False) -> ASGIApp:
    """Make the application of these APIs; the first one with a path serves it.

    Args:
        origins: of pages that may call it, beside its own; "*" is all.
        is_local: it is for this machine alone, and not for a page whose name is made to lead to it (DNS rebinding).
    """
    middleware = [Middleware(_Rules, origins=origins, is_local=is_local)]
    if origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
            max_age=CORS_SECONDS,
        )
        middleware.append(cors)
    routes = [route for api in apis for route in api.mount(parts)]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={404: _no_route, 405: _no_route})


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    methods = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))  # Starlette's order varies
    problem = f"the route takes {methods}; {ALL_ROUTES}" if methods else NO_ROUTE
    call = f"{request.method} {request.url.path}"
    page = "; --playground puts a page here" if call == "GET /" else ""
    message = f"{call}: {problem}{page}"
    # OpenAI's clients show `error.message`, DeepL's `message`.
    body = {"error": {"message": message}} if request.url.path.startswith("/v1/") else {"error": message, "message": message}
    return JSONResponse(body, error.status_code, error.headers)


class _Rules:
    """Middleware that adds HEADERS, and rejects requests that a page of another origin makes.

    Without it, any page that a user visits could call a server on the user's machine, with requests of the kinds that browsers
    send without asking the server first.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], is_local: bool) -> None:
        self._app = app
        self._origins, self._is_local = frozenset(origins), is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if "content-length" not in headers:  # a stream: nginx would hold it back until it has some KB
                    headers["x-accel-buffering"] = "no"
            await send(message)

        if scope["path"].endswith("/"):  # starlette would redirect to a URL that a proxy before the server may not have
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        app = self._app if self._is_allowed(Headers(scope=scope)) else JSONResponse(FOREIGN, 403)
        with suppress(asyncio.CancelledError):  # by the port, which waits no longer: the stream has reported it
            await app(scope, receive, send_with_headers)

    def _is_allowed(self, headers: Headers) -> bool:
        origin, host = headers.get("origin"), headers.get("host", "")
        if self._is_local and not ("*" in self._origins or _names_this_machine(host)):
            return not self._origins.isdisjoint((f"http://{host}", f"https://{host}"))
        if origin is None or origin in self._origins or "*" in self._origins:
            return True
        return origin.partition("://")[2] == host


def _names_this_machine(host: str) -> bool:
    """Return False for a name that somebody may own in the internet."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return "." not in name or name.endswith(OWN_NAMES) or bool(ipaddress.ip_address(name))
    except ValueError:  # neither a host nor an address
        return False


FOREIGN = {"error": "pages of this origin or host may not call the server: allow it with --http-origin"}
