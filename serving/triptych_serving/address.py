"""Addresses to listen on."""

import errno
import socket

from triptych_serving.errors import PortError


def format_address(host: str, port: int) -> str:
    """Join host and port in gRPC's notation, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def check_free(host: str, port: int) -> None:
    """Check that a server can listen on an address; gRPC would not tell why it cannot.

    Raises:
        PortError: the port is in use, or the host is not this machine; tells which.
    """
    where = f"port {port}: cannot listen on {host}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PortError(f"{where}: {error.strerror}") from error
    faults = [fault for family, _, _, _, address in found if (fault := _fault(family, address)) is not None]
    in_use = [fault for fault in faults if fault.errno == errno.EADDRINUSE]
    if in_use or len(faults) == len(found):
        raise PortError(f"{where}: {(in_use or faults)[0].strerror}")


def _fault(family: int, address: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
            probe.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None
