"""The HTTP port: uvicorn's protocol in the server's event loop, limits for slow and large requests, TLS as for gRPC."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from triptych_serving.address import format_address, listen
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.security.secret_files import ReloadedFiles
from triptych_serving.security.tls import Certificates, certificate_names_of, server_context

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0  # in which the head of a request must arrive
HEAD_BYTES = 32 << 10
IDLE_SECONDS = 60  # between two requests of a connection
UNREAD_SECONDS = 60.0  # in which a client must read some of a response
MAX_PIPELINED = 32  # requests of a connection that wait for the responses to earlier ones; uvicorn would read on without end
BACKLOG = 512
UPGRADE = re.compile(rb"(?<=\n)upgrade(?=[ \t]*:)", re.IGNORECASE)  # a header


class HttpPort:
    """A port that serves an application.

    Args:
        certificates: None without TLS.
        on_stop: called when no request is in flight any more.
    """

    def __init__(
        self,
        options: GatewayOptions,
        certificates: ReloadedFiles[Certificates] | None,
        application: ASGIApp,
        on_stop: Callable[[], None],
    ) -> None:
        self._on_stop = on_stop
        self.port = options.port  # the actual port after `start`
        self._options = options
        self._context = None if certificates is None else server_context(certificates)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._handshakes: OrderedDict[asyncio.Task[Any], None] = OrderedDict()  # those of TLS in progress, the oldest first
        self._config = uvicorn.Config(
            application,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            limit_concurrency=options.connections,
        )
        self._config.load()

    async def start(self) -> None:
        """Listen. Raises PortError: the address is in use or not allowed."""
        host, port = self._options.host, self._options.port
        tls = {} if self._context is None else {"ssl": self._context, "ssl_handshake_timeout": HEAD_SECONDS}
        listening = listen(self._make_protocol, host, port, self._options.port_flag, BACKLOG, self._options.is_shared, **tls)
        self._server = await listening
        self.port = int(self._server.sockets[0].getsockname()[1])
        scheme = "http" if self._context is None else "https"
        logger.info("HTTP gateway on %s://%s", scheme, format_address(host, self.port))

    async def stop(self, seconds: float) -> None:
        """Close the port. Requests in flight have `seconds` to end, and are then cancelled."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._on_stop()

    def _make_protocol(self) -> asyncio.Protocol:
        """Make the protocol of a connection. The oldest handshake ends if there are too many: each takes 0.3 MB."""
        handshake = None if self._context is None else asyncio.current_task()  # asyncio calls this method in its task
        if handshake is not None:
            if len(self._handshakes) >= self._options.connections:
                self._handshakes.popitem(last=False)[0].cancel()
            self._handshakes[handshake] = None
            handshake.add_done_callback(lambda ended: self._handshakes.pop(ended, None))
        return _Protocol(self._config, self._state, {})


class _Protocol(HttpToolsProtocol):
    """One connection. uvicorn itself limits neither a request's head, nor the time that it and an unread response take.

    If there are too many, the one that has been without a request for longest is closed. With uvicorn's own rule, idle
    connections would keep out all others.
    """

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self._head_bytes = 0  # of a request's head, or of what follows the last piece of its body: trailers
        self._in_head = True  # also between two requests
        self._idle_since = self.loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}  # what is waited for -> the end of the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {"identities": certificate_names_of(transport.get_extra_info("ssl_object"))}
        self._wait_for("head", HEAD_SECONDS)
        if len(self.connections) >= (self.limit_concurrency or 0):
            others = (
                other for other in self.connections if isinstance(other, _Protocol) and other is not self and other._is_idle
            )
            if oldest := min(others, key=lambda other: other._idle_since, default=None):
                oldest.transport.abort()

    @property
    def _is_idle(self) -> bool:
        has_request = not self._in_head or (self.cycle is not None and not self.cycle.response_complete)
        return not has_request and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        for what in list(self._timers):
            self._received(what)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._wait_for("head", HEAD_SECONDS)
            # There is no protocol to change to, and the parser takes what follows an upgrade for that protocol, not for a body.
            head, end, rest = data.partition(b"\r\n\r\n")
            data = UPGRADE.sub(b"x-ignored", head) + end + rest
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"the head of the request, or its trailers, are larger than {HEAD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are dropped
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._received("head")
        self._received("rest")
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)  # a head may arrive in one piece
        if size > HEAD_BYTES or sum(name == b"host" for name, _ in self.headers) > 1:
            raise ValueError("the head is too large, or names several hosts")  # which uvicorn answers with 400
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests wait for the responses to earlier ones")
        super().on_headers_complete()
        if self.parser.get_http_version() == "1.0":
            self.cycle.send = _without_chunks(self.cycle)  # type: ignore[method-assign]
        self.cycle.send = _while_open(self.cycle)  # type: ignore[method-assign]
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        if not self._in_head and self.cycle.response_complete:  # before its request: uvicorn waits for the rest without end
            self._wait_for("rest", IDLE_SECONDS)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._wait_for("reader", UNREAD_SECONDS)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._received("reader")
        super().resume_writing()

    def _wait_for(self, what: str, seconds: float) -> None:
        """Close the connection unless `_received` is called in time. A wait that has begun goes on."""
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(seconds, self.transport.abort)

    def _received(self, what: str) -> None:
        if (timer := self._timers.pop(what, None)) is not None:
            timer.cancel()


def _while_open(cycle: RequestResponseCycle) -> Any:
    """Return a `send` that drops what comes after the end of the connection at once; asyncio would log warnings about it."""
    send = cycle.send

    async def send_while_open(message: Any) -> None:
        if cycle.transport.is_closing():
            cycle.disconnected = True  # as uvicorn has it in the loop's next turn
        await send(message)

    return send_while_open


def _without_chunks(cycle: RequestResponseCycle) -> Any:
    """Return a `send` whose streams end with the connection: HTTP/1.0 has no chunks, but uvicorn sends them."""
    send, is_stream = cycle.send, False

    async def send_plainly(message: Any) -> None:
        nonlocal is_stream
        if message["type"] == "http.response.start":
            is_stream = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            cycle.chunked_encoding = False if is_stream else None
        elif is_stream:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return send_plainly
