"""Addresses to listen on."""

import asyncio
import os
import socket
import sys
from typing import Any

import pytest

from triptych_serving.address import check_free, format_address, listen, reserve_port
from triptych_serving.errors import PortError


def test_format() -> None:
    assert format_address("::1", 8001) == format_address("[::1]", "8001") == "[::1]:8001"
    assert format_address("localhost", 8001) == "localhost:8001"


@pytest.mark.parametrize("host", ["", "unix:/tmp/x"])
def test_what_is_no_host_is_named_with_a_remedy(host: str) -> None:
    remedy = "give an address or name of this machine; unix sockets are not supported"
    with pytest.raises(PortError, match=f"^--host '{host}': .+; {remedy}$"):
        check_free(host, 0)


def test_a_process_without_open_files_tries_to_accept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 3600)
    monkeypatch.setattr("asyncio.selector_events.constants.ACCEPT_RETRY_DELAY", 3600)
    faults: list[dict[str, Any]] = []

    async def connect() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        server = await listen(asyncio.Protocol, "127.0.0.1", 0, "--port")
        address = server.sockets[0].getsockname()
        with socket.socket() as client:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            highest = os.dup(0)
            os.close(highest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
            try:
                client.connect(address)
                while not faults:
                    await asyncio.sleep(0)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        server.close()

    asyncio.run(connect())
    assert [fault["exception"].strerror for fault in faults] == ["Too many open files"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::"])
def test_a_reserved_port_is_for_processes_that_share_it(host: str) -> None:
    try:
        reserved = reserve_port(host, 0, "--port")
    except PortError as error:  # a machine without IPv6
        pytest.skip(str(error))
    try:
        port = int(reserved[0].getsockname()[1])
        assert {each.getsockname()[1] for each in reserved} == {port}
        with pytest.raises(PortError, match=f"^--http-port {port}: cannot listen on .*: Address already in use$"):
            check_free(host, port, "--http-port")
        with pytest.raises(PortError, match=f"^--port {port}: "):
            reserve_port(host, port, "--port")

        async def share() -> None:
            servers = [await listen(asyncio.Protocol, host, port, "--port", is_shared=True) for _ in range(2)]
            with pytest.raises(PortError):
                await listen(asyncio.Protocol, host, port, "--port")
            for server in servers:
                server.close()

        asyncio.run(share())
    finally:
        for each in reserved:
            each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT spreads connections on Linux only")
def test_connections_of_an_earlier_server_keep_no_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()  # the server ends it, and so its side stays in TIME_WAIT
            assert client.recv(1) == b""
    [reserved] = reserve_port("127.0.0.1", port, "--port")
    with reserved:
        assert reserved.getsockname()[1] == port
