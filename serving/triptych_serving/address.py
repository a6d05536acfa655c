"""Where a server listens."""

import errno
import socket

from triptych_serving.errors import PortError


def format_address(host: str, port: int) -> str:
    """Host and port as gRPC writes them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def check_free(host: str, port: int) -> None:
    """Whether a server could listen there. gRPC would say no more than that it could not.

    Raises:
        PortError: the port is taken, or the host is not this machine; says which.
    """
    where = f"port {port}: cannot listen on {host}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PortError(f"{where}: {error.strerror}") from error
    faults = [fault for family, _, _, _, address in found if (fault := _fault(family, address)) is not None]
    taken = [fault for fault in faults if fault.errno == errno.EADDRINUSE]
    if taken or len(faults) == len(found):
        raise PortError(f"{where}: {(taken or faults)[0].strerror}")


def _fault(family: int, address: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what closed a moment ago is not in the way
            probe.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None
