"""The HTTP port with more connections than it allows."""

import asyncio
import logging
import socket
import ssl
import struct
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from triptych.v1 import text_generation_pb2 as pb
from triptych_serving.gateway.app import make_application
from triptych_serving.gateway.connect import _stream as connect_stream
from triptych_serving.gateway.http_server import HEAD_SECONDS, MAX_PIPELINED, HttpPort
from triptych_serving.gateway.openai import Answer
from triptych_serving.gateway.openai import _events as openai_events
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.tls import open_certificates

from ....fixtures.certificates import LOCAL, Authority
from ..calls import PATIENCE_SECONDS, in_loop

LIMIT = 4
REQUEST = b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def served(application: Any, security: SecurityOptions | None = None) -> AsyncIterator[HttpPort]:
    certificates = open_certificates(security or SecurityOptions())
    port = HttpPort(GatewayOptions("127.0.0.1", 0, connections=LIMIT), certificates, application, lambda: None)
    await port.start()
    yield port
    await port.stop(1)


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@in_loop
async def test_idle_connections_do_not_keep_out_others() -> None:
    finish = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await finish.wait()
        await answer(scope, receive, send)

    async with served(application) as port:
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


@in_loop
async def test_few_requests_wait_for_the_responses_to_earlier_ones() -> None:
    most = 1 + MAX_PIPELINED
    async with served(answer) as port, asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(REQUEST % b"" * most)
        for _ in range(most):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(REQUEST % b"" * (most + 1))
        assert (await reader.read()).startswith(b"HTTP/1.1 400")  # and the connection is closed


@in_loop
async def test_pieces_for_a_client_that_is_gone_are_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    closed = threading.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert closed.wait(PATIENCE_SECONDS)  # this stops the loop, which cannot learn yet that the connection is lost
        for _ in range(20):
            await send({"type": "http.response.body", "body": b"piece", "more_body": True})

    def leave(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(REQUEST % b"")
            client.recv(1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
        closed.set()

    async with served(application) as port:
        await asyncio.to_thread(leave, port.port)
    assert caplog.messages == []


@in_loop
async def test_silent_clients_do_not_keep_out_others_before_their_handshake(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server", *LOCAL)
    trusted = ssl.create_default_context(cafile=str(authority.file))
    async with served(answer, SecurityOptions(tls_certificate=pair.certificate, tls_key=pair.key)) as port:
        silent = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port.port) for _ in range(3 * LIMIT)))
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusted)
        writer.write(REQUEST % b"")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        for early, _ in silent[: 2 * LIMIT]:  # closed before their time
            with suppress(ConnectionError):
                assert await asyncio.wait_for(early.read(), HEAD_SECONDS / 2) == b""
        for _, each in (*silent, (reader, writer)):
            each.close()


@in_loop
async def test_rejected_clients_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "triptych_serving.security.tls")
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    pair, other = authority.sign("server", *LOCAL), stranger.sign("app")
    trusting = [ssl.create_default_context(cafile=str(authority.file)) for _ in range(2)]
    trusting[1].load_cert_chain(other.certificate, other.key)
    security = SecurityOptions(tls_certificate=pair.certificate, tls_key=pair.key, tls_client_ca=authority.file)
    async with served(answer, security) as port:
        caplog.clear()
        for trusted in (*trusting, None):
            with suppress(OSError):  # of TLS or of the connection
                reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusted)
                writer.write(REQUEST % b"")
                assert await reader.read() == b""
    failed = "TLS handshake failed: "
    assert caplog.messages == [
        f"{failed}peer did not return a certificate",
        f"{failed}the client's certificate is rejected: unable to get local issuer certificate",
        f"{failed}http request",
    ]


@pytest.mark.parametrize(("path", "status"), [("slow", 503), ("connect", 200), ("openai", 200)])
@in_loop
async def test_requests_that_outlast_the_stop_are_told(path: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    running = asyncio.Event()

    async def slow(_: Any = None) -> dict[str, Any]:
        running.set()
        await asyncio.sleep(3600)
        return {}

    async def events() -> AsyncGenerator[Any]:
        yield pb.GenerateStreamResponse()
        yield await slow()

    async def connect(_: Any) -> StreamingResponse:
        return StreamingResponse(connect_stream(events(), "json", "id"))

    async def openai(_: Any) -> StreamingResponse:
        waiting = events()
        return StreamingResponse(openai_events(Answer(False, "gpt", 1), await anext(waiting), waiting, usage=False))

    api = Api("test", tuple(ApiRoute(f"/{each.__name__}", each, ("GET",)) for each in (slow, connect, openai)))
    parts: Any = None
    async with served(make_application([api], parts, ())) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(REQUEST % path.encode())
        await running.wait()
        await port.stop(0.01)
        found = (await reader.read()).decode("latin-1")
        writer.close()
    assert found.startswith(f"HTTP/1.1 {status}")
    assert "the server is shutting down" in found
    if status == 200:
        assert found.endswith("\r\n0\r\n\r\n"), "the stream is complete"
    assert not caplog.records


@in_loop
async def test_streams_of_http_1_0_have_no_chunks() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/whole":
            await answer(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one ", b"", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    async with served(application) as port:
        found = {}
        for path, version in (("stream", "1.0"), ("stream", "1.1"), ("whole", "1.0")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(f"GET /{path} HTTP/{version}\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            head, _, found[path, version] = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert (b"transfer-encoding" in head, b"content-length" in head) == (version == "1.1", path == "whole")
            writer.close()
    assert found == {
        ("stream", "1.0"): b"one two",
        ("stream", "1.1"): b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n",
        ("whole", "1.0"): b"",
    }
