"""A minimal HTTP server for metrics and probes, in the server's event loop, so that a response proves that the loop runs.

Each connection serves one request. A slow or silent client holds only its connection, for a few seconds. When too many are
open, the oldest one is closed, so that idle connections never keep out a probe, which asks at once.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from triptych_serving.address import listen

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16_384
READ_SECONDS = 5.0
SEND_SECONDS = 10.0
MAX_CONNECTIONS = 64


@dataclass(frozen=True)
class HttpRequest:
    """A parsed request; names of headers in lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HttpResponse:
    """A response; Content-Length and Connection are added."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, status: int, text: str, **headers: str) -> "HttpResponse":
        """Make a response of text."""
        return cls(status, f"{text}\n".encode(), {"Content-Type": "text/plain; charset=utf-8", **headers})

    def pack(self, head_only: bool) -> bytes:
        """Serialize the response."""
        headers = {**self.headers, "Content-Length": str(len(self.body)), "Connection": "close"}
        start = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"
        head = "\r\n".join([start, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()
        return head if head_only else head + self.body


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class HttpServer:
    """Serve GET and HEAD requests."""

    def __init__(self, handlers: Mapping[str, HttpHandler]) -> None:
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.WriteTransport] = {}  # the oldest first

    async def start(self, host: str, port: int, flag: str) -> int:
        """Listen, and return the port.

        Args:
            port: 0 is any free one.
            flag: names the port in errors.

        Raises:
            PortError: the address is in use or not allowed.
        """
        self._server = await listen(self._make_protocol, host, port, flag)
        return int(self._server.sockets[0].getsockname()[1])

    async def start_unix(self, listener: socket.socket) -> None:
        """Listen on a Unix socket that has a name."""
        self._server = await asyncio.get_running_loop().create_unix_server(self._make_protocol, sock=listener)

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _make_protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(MAX_HEAD_BYTES), self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        usable = [transport for transport in self._connections.values() if not transport.is_closing()]
        if len(usable) >= MAX_CONNECTIONS:
            usable[0].abort()
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections[connection] = writer.transport
        connection.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._respond(reader, writer)
        except (TimeoutError, OSError, EOFError):  # the client is slow or gone
            pass
        finally:
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # makes `drain` wait for the last byte
        head_only = False
        try:
            async with asyncio.timeout(READ_SECONDS):
                request = _parse(await reader.readuntil(b"\r\n\r\n"))
            head_only = request.method == "HEAD"
            response = await self._handle(request)
        except asyncio.LimitOverrunError:
            response = HttpResponse.text(431, f"request head is larger than {MAX_HEAD_BYTES} bytes")
        except TimeoutError:
            response = HttpResponse.text(408, f"no request received within {READ_SECONDS:g} seconds")
        except ValueError as error:
            response = HttpResponse.text(400, str(error))
        async with asyncio.timeout(SEND_SECONDS):
            writer.write(response.pack(head_only))
            await writer.drain()
            writer.write_eof()
            # Wait until the client closes: unread data would reset its connection.
            await reader.read(MAX_HEAD_BYTES)

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        handler = self._index if request.path == "/" else self._handlers.get(request.path)
        if handler is None:
            return HttpResponse.text(404, f"not found; available: {', '.join(self._handlers)}")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse.text(405, "only GET and HEAD are supported", Allow="GET, HEAD")
        try:
            return await handler(request)
        except Exception as error:  # the server must survive any error of a page
            logger.error("%s failed: %s", request.path, error, exc_info=error)
            return HttpResponse.text(500, "internal error; the server's log has the details")

    async def _index(self, _: HttpRequest) -> HttpResponse:
        """List the paths."""
        return HttpResponse.text(200, "\n".join(self._handlers))


def _parse(head: bytes) -> HttpRequest:
    """Parse the head of a request. Raises ValueError: it is not HTTP/1."""
    start, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = start.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError("not an HTTP/1 request")
    url = urlsplit(parts[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return HttpRequest(parts[0], url.path, url.query, headers)
