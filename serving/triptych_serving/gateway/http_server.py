"""The HTTP port: uvicorn's protocol in the server's event loop, limits for slow and large requests, TLS as for gRPC."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from triptych_serving.address import format_address, listen
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.tls import certificate_names_of, server_context

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0  # in which the head of a request must arrive
HEAD_BYTES = 32 << 10
IDLE_SECONDS = 60  # between two requests of a connection
BACKLOG = 512


class HttpPort:
    """A port that serves an application.

    Args:
        options: see GatewayOptions.
        security: certificates.
        application: ASGI.

    Raises:
        SecurityError: certificates cannot be used.
    """

    def __init__(self, options: GatewayOptions, security: SecurityOptions, application: ASGIApp) -> None:
        self.port = options.port  # the actual port after `start`
        self._options = options
        self._context = server_context(security)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
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
        """Listen.

        Raises:
            PortError: the address is in use or not allowed.
        """
        host, port = self._options.host, self._options.port
        self._server = await listen(self._make_protocol, host, port, "--http-port", ssl=self._context, backlog=BACKLOG)
        self.port = int(self._server.sockets[0].getsockname()[1])
        scheme = "http" if self._context is None else "https"
        logger.info("HTTP gateway on %s://%s", scheme, format_address(host, self.port))

    async def stop(self, seconds: float) -> None:
        """Close the port. Requests in flight have `seconds` to end, and are then cancelled."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_protocol(self) -> asyncio.Protocol:
        return _Protocol(self._config, self._state, {})


class _Protocol(HttpToolsProtocol):
    """One connection. uvicorn itself limits neither the size of a request's head nor the time that it takes."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self._head_bytes = 0
        self._in_head = True  # also between two requests
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {"identities": certificate_names_of(transport.get_extra_info("ssl_object"))}
        self._head_timer = self.loop.call_later(HEAD_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"request head is larger than {HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
