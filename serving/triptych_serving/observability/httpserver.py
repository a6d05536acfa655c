"""A tiny HTTP server for scrapers and probes, in the server's own event loop: whoever gets an answer knows that it runs.

Every connection is for one request. A slow or silent client holds nothing but its connection, and that not for long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from triptych_serving.errors import PortError

logger = logging.getLogger(__name__)

EVERY_IPV6 = "::"
MAX_HEAD_BYTES = 16_384
READ_SECONDS = 5.0
SEND_SECONDS = 10.0
MAX_CONNECTIONS = 64

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Request:
    """What a client asked; the names of headers are in lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    """What it gets."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, status: int, text: str, **headers: str) -> Response:
        """One line."""
        return cls(status, f"{text}\n".encode(), {"Content-Type": "text/plain; charset=utf-8", **headers})

    def pack(self, head_only: bool) -> bytes:
        """As it goes out."""
        headers = {**self.headers, "Content-Length": str(len(self.body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {self.status} {REASONS[self.status]}", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if head_only else self.body)


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """GET and HEAD alone.

    Args:
        handlers: by path.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, flag: str) -> int:
        """Listen; returns the port, which a `port` of 0 leaves open.

        Args:
            host: address.
            port: 0 is any free one.
            flag: names the port in errors.

        Raises:
            PortError: the address is taken or not allowed.
        """
        try:
            self._server = await self._listen(host.strip("[]"), port)
        except OSError as error:
            raise PortError(f"{flag} {port}: cannot listen on {host}: {_reason(error)}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        if host == EVERY_IPV6 and socket.has_dualstack_ipv6():  # as gRPC does; asyncio would leave IPv4 out
            listener = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
            return await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)
        return await asyncio.start_server(self._accept, host, port, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            await self._answer(reader, writer)
        except (TimeoutError, OSError, EOFError):  # the client is slow, or gone
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits for the last byte
        head_only = False
        try:
            async with asyncio.timeout(READ_SECONDS):
                request = _parse(await reader.readuntil(b"\r\n\r\n"))
            head_only = request.method == "HEAD"
            response = await self._handle(request)
        except asyncio.LimitOverrunError:
            response = Response.text(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes")
        except TimeoutError:
            response = Response.text(408, f"the request did not come within {READ_SECONDS:g} seconds")
        except ValueError as error:
            response = Response.text(400, str(error))
        async with asyncio.timeout(SEND_SECONDS):
            writer.write(response.pack(head_only))
            await writer.drain()
            writer.write_eof()
            await reader.read(
                MAX_HEAD_BYTES
            )  # until the client has closed: data that is left unread would reset its connection

    async def _handle(self, request: Request) -> Response:
        handler = self._handlers.get(request.path)
        if handler is None:
            return Response.text(404, f"there are: {', '.join(self._handlers)}")
        if request.method not in ("GET", "HEAD"):
            return Response.text(405, "GET and HEAD alone", Allow="GET, HEAD")
        try:
            return await handler(request)
        except Exception as error:  # whatever it is, the server must live on
            logger.error("%s failed: %s", request.path, error, exc_info=error)
            return Response.text(500, "internal error; the server's log has more")


def _parse(head: bytes) -> Request:
    """Raises ValueError where it is not HTTP."""
    start, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = start.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError("this is not an HTTP/1 request")
    url = urlsplit(parts[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(parts[0], url.path, url.query, headers)


def _reason(error: OSError) -> str:
    """asyncio's own text repeats the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
