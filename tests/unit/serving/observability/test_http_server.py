"""The HTTP server of metrics and probes: responses, and clients that misbehave."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from triptych_serving.errors import PortError
from triptych_serving.observability import http_server
from triptych_serving.observability.http_server import MAX_HEAD_BYTES, HttpRequest, HttpResponse, HttpServer

from ..calls import PATIENCE_SECONDS, in_loop

LARGE = b"x" * (32 << 20)  # larger than the buffers of two sockets


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse.text(200, f"hello {request.query}")


async def large(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, LARGE)


async def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("broken")


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, HttpServer]]:
    """Run a server; return its port, too."""
    server = HttpServer({"/hello": hello, "/large": large, "/broken": broken})
    port = await server.start(host, 0, "--flag")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield port, server
    finally:
        await server.stop()


async def send(port: int, data: bytes) -> bytes:
    """Send bytes and return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/hello"), b"200 OK"),
        (get("/"), b"200 OK"),
        (get("/hello").replace(b"1.1", b"1.0"), b"200 OK"),
        (get("/nowhere"), b"404 Not Found"),
        (get("/hello", "POST"), b"405 Method Not Allowed"),
        (get("/broken"), b"500 Internal Server Error"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET /hello\r\n\r\n", b"400 Bad Request"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01 \xff\xfe\r\n\r\n", b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nA: " + b"a" * (2 * MAX_HEAD_BYTES) + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
)
@in_loop
async def test_statuses(request_bytes: bytes, status: bytes) -> None:
    async with serving() as (port, _):
        answer = await send(port, request_bytes)
        assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert b"\r\nConnection: close\r\n" in answer


@in_loop
async def test_bodies() -> None:
    async with serving() as (port, _):
        head, _, body = (await send(port, get("/hello?name=you"))).partition(b"\r\n\r\n")
        assert body == b"hello name=you\n"
        assert b"Content-Length: 15" in head
        assert (await send(port, get("/hello", "HEAD"))).endswith(b"Content-Length: 7\r\nConnection: close\r\n\r\n")
        assert (await send(port, get("/"))).endswith(b"\r\n\r\n/hello\n/large\n/broken\n")
        assert (await send(port, get("/large"))).partition(b"\r\n\r\n")[2] == LARGE


@in_loop
async def test_error_of_a_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (port, _):
        await send(port, get("/broken"))
    [record] = [record for record in caplog.records if record.name == http_server.__name__]
    assert record.getMessage() == "/broken failed: broken"
    assert record.exc_info


@in_loop
async def test_silent_clients_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.5)
    async with serving() as (port, _):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in silent:
            writer.write(b"GET /hello HTTP/1.1\r\n")  # and never the rest
        assert b"200 OK" in await send(port, get("/hello"))
        answers = await asyncio.gather(*(reader.read() for reader, _ in silent))
        assert all(answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n") for answer in answers)


@in_loop
async def test_clients_that_read_nothing_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SEND_SECONDS", 0.5)
    async with serving() as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("/large"))
        assert b"200 OK" in await send(port, get("/hello"))
        await asyncio.sleep(1)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(1 << 20):
                received += len(data)
        assert received < len(LARGE)
        writer.close()


@in_loop
async def test_idle_connections_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)
    async with serving() as (port, _):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert b"200 OK" in await send(port, get("/hello"))
        with contextlib.suppress(ConnectionResetError):
            assert await held[0][0].read() == b""  # the oldest is closed
        held[1][1].write(get("/hello"))  # the others are not
        assert b"200 OK" in await held[1][0].read()


def test_address_errors_name_the_flag() -> None:
    def start(host: str, port: int) -> None:
        asyncio.run(HttpServer({}).start(host, port, "--metrics-port"))

    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        message = f"--metrics-port {port}: cannot listen on 127.0.0.1: Address already in use"
        with pytest.raises(PortError, match=f"^{message}$"):
            start("127.0.0.1", port)
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(PortError, match=f"^--metrics-port 0: cannot listen on {host}: "):
            start(host, 0)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::", "[::]"])
@in_loop
async def test_unspecified_ipv6_address_includes_ipv4(host: str) -> None:
    async with serving(host) as (port, _):
        assert b"200 OK" in await send(port, get("/hello"))


@in_loop
async def test_stop_closes_connections() -> None:
    async with serving() as (port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.1)
        await server.stop()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
