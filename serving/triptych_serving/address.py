"""Addresses to listen on."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from triptych_serving.errors import PortError

EVERY_IPV6 = "::"


def format_address(host: str, port: int | str) -> str:
    """Join host and port in gRPC's notation, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


async def listen(
    make_protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    flag: str,
    backlog: int = 100,
    is_shared: bool = False,
    **options: Any,
) -> asyncio.Server:
    """Listen for connections; `::` includes IPv4, as with gRPC.

    Args:
        make_protocol: makes the protocol of a connection.
        host: address.
        port: 0 is any free one.
        flag: names the port in errors.
        backlog: connections that may wait to be accepted.
        is_shared: several processes listen on the port; see `reserve_port`.
        options: of `loop.create_server`.

    Raises:
        PortError: the address is in use or not allowed.
    """
    host, loop = host.strip("[]"), asyncio.get_running_loop()
    try:
        if host == EVERY_IPV6 and socket.has_dualstack_ipv6():
            every = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=is_shared)
            options["sock"] = every
        else:
            options |= {"host": host, "port": port, "reuse_port": is_shared or None}
        # Without open files left, asyncio tries to accept, and logs, as often as its backlog says, again and again.
        server = await loop.create_server(make_protocol, backlog=1, **options)
        for listener in server.sockets:
            with listener.dup() as same:
                same.listen(backlog)
    except OSError as error:  # asyncio's own text repeats the address
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
        raise PortError(f"{flag} {port}: cannot listen on {host}: {reason}") from error
    return server


def check_free(host: str, port: int, flag: str = "port") -> list[tuple[int, Any]]:
    """Check that a server can listen on an address; gRPC would not tell why it cannot.

    Args:
        flag: names the port in errors.

    Returns:
        Family and address of each socket that can listen.

    Raises:
        PortError: the port is in use, or the host is not this machine; tells which.
    """
    where = f"{flag} {port}: cannot listen on {host}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        remedy = "give an address or name of this machine; unix sockets are not supported"
        raise PortError(f"--host {host!r}: {error.strerror}; {remedy}") from error
    probed = [(family, address, _fault(family, address)) for family, _, _, _, address in found]
    faults = [fault for *_, fault in probed if fault is not None]
    in_use = [fault for fault in faults if fault.errno == errno.EADDRINUSE]
    if in_use or len(faults) == len(found):
        raise PortError(f"{where}: {(in_use or faults)[0].strerror}")
    return [(family, address) for family, address, fault in probed if fault is None]


def reserve_port(host: str, port: int, flag: str) -> list[socket.socket]:
    """Bind sockets, without listening, so that several processes of one user can listen on a port, and nobody else.

    Args:
        host: address.
        port: 0 is any free one.
        flag: names the port in errors.

    Raises:
        PortError: the port is in use, or the host is not this machine.
    """
    reserved: list[socket.socket] = []
    for family, (name, _, *rest) in check_free(host, port, flag):
        reserved.append(socket.socket(family, socket.SOCK_STREAM))
        try:
            if family == socket.AF_INET6:
                reserved[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # the other family has its own socket
            reserved[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            _bind(reserved[-1], (name, port, *rest))
        except OSError as error:
            for each in reserved:
                each.close()
            raise PortError(f"{flag} {port}: cannot listen on {host}: {error.strerror}") from error
        port = reserved[0].getsockname()[1]  # the same for all
    return reserved


def _bind(listener: socket.socket, address: tuple[Any, ...]) -> None:
    try:
        listener.bind(address)
    except OSError:  # perhaps connections of an earlier server in TIME_WAIT
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not always: others could bind the port, too
        listener.bind(address)


def _fault(family: int, address: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
            probe.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None
