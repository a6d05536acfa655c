"""The HTTP port with more connections than it allows."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from triptych_serving.gateway.http_server import HEAD_SECONDS, HttpPort
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.security.options import SecurityOptions

from ....fixtures.certificates import LOCAL, Authority

LIMIT = 4
REQUEST = b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n"


def test_idle_connections_do_not_keep_out_others() -> None:
    asyncio.run(connect_beyond_the_limit())


async def connect_beyond_the_limit() -> None:
    finish = asyncio.Event()

    async def application(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        if scope["path"] == "/slow":
            await finish.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    port = HttpPort(GatewayOptions("127.0.0.1", 0, connections=LIMIT), SecurityOptions(), application, lambda: None)
    await port.start()
    connections = [await asyncio.open_connection("127.0.0.1", port.port)]
    connections[0][1].write(REQUEST % b"slow")
    for _ in range(3 * LIMIT):
        connections.append(await asyncio.open_connection("127.0.0.1", port.port))
        await asyncio.sleep(0.01)
    reader, writer = connections[-1]
    for _ in range(2):
        writer.write(REQUEST % b"")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"\r\n\r\n")
    with suppress(ConnectionError):
        assert await connections[1][0].read() == b""  # the oldest idle one is closed
    finish.set()
    assert (await connections[0][0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    await port.stop(1)


def test_silent_clients_do_not_keep_out_others_before_their_handshake(tmp_path: Path) -> None:
    asyncio.run(connect_silently(Authority(tmp_path)))


async def connect_silently(authority: Authority) -> None:
    async def application(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    pair = authority.sign("server", *LOCAL)
    security = SecurityOptions(tls_certificate=pair.certificate, tls_key=pair.key)
    port = HttpPort(GatewayOptions("127.0.0.1", 0, connections=LIMIT), security, application, lambda: None)
    await port.start()
    silent = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port.port) for _ in range(3 * LIMIT)))
    trusted = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusted)
    writer.write(REQUEST % b"")
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    for early, _ in silent[: 2 * LIMIT]:  # closed before their time
        with suppress(ConnectionError):
            assert await asyncio.wait_for(early.read(), HEAD_SECONDS / 2) == b""
    for _, each in (*silent, (reader, writer)):
        each.close()
    await port.stop(1)


def test_requests_that_outlast_the_stop_are_told() -> None:
    asyncio.run(stop_while_a_request_runs())


async def stop_while_a_request_runs() -> None:
    running = asyncio.Event()

    async def wait(_: Any) -> dict[str, Any]:
        running.set()
        await asyncio.sleep(3600)
        return {}

    parts: Any = None
    application = Starlette(routes=Api("test", (ApiRoute("/slow", wait, ("GET",)),)).mount(parts))
    port = HttpPort(GatewayOptions("127.0.0.1", 0), SecurityOptions(), application, lambda: None)
    await port.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(REQUEST % b"slow")
    await running.wait()
    await port.stop(0.01)
    answer = (await reader.read()).decode()
    assert answer.startswith("HTTP/1.1 503")
    assert answer.endswith('{"error":"the server is shutting down"}')
    writer.close()
