"""How many calls one client may have at a time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import unquote

from triptych_serving.errors import OverloadedError
from triptych_serving.rpc.call_context import Context, Rpc

RETRY_SECONDS = 0.5  # when one of its own calls ends, the client knows better than the server
EXEMPT = "grpc."  # packages of health checks and reflection


class ClientLimit:
    """A guard. A client is the name of its key or certificate, or else the address that it calls from; a stream is one call.

    Used in the event loop alone.

    Args:
        limit: calls at a time; 0: any number.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: Counter[str] = Counter()

    def admit(self, rpc: Rpc, context: Context) -> AbstractContextManager[None] | None:
        """Hold one of the client's places until the call ends.

        Raises:
            OverloadedError: there is none left.
        """
        if not self._limit or rpc.service.startswith(EXEMPT):
            return None
        client = client_of(rpc)
        self._check(client)
        return self._hold(client)

    @contextmanager
    def _hold(self, client: str) -> Iterator[None]:
        self._running[client] += 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]

    def _check(self, client: str) -> None:
        running = self._running.get(client, 0)
        if running >= self._limit:
            raise OverloadedError(
                f"client {client} has {running:,} calls under way, no more are allowed at a time (--max-requests-per-client)",
                RETRY_SECONDS,
            )


def client_of(rpc: Rpc) -> str:
    """The principal, or else the peer without its port: `ipv6:%5B::1%5D:567` -> `[::1]`; of a local socket, `unix`."""
    if rpc.principal:
        return rpc.principal
    scheme, _, address = unquote(rpc.peer).partition(":")
    return address.rpartition(":")[0] if scheme in ("ipv4", "ipv6") else scheme
