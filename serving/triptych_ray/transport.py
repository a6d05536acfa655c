"""What takes the place of a gRPC server in a replica: the same handlers, and no port."""

from __future__ import annotations

from triptych_ray.methods import Handler
from triptych_serving.rpc.dispatch import Router


class Transport:
    """Hands out what handles a call.

    Args:
        routes: has the handlers.
    """

    def __init__(self, routes: Router) -> None:
        self._routes = routes

    async def start(self) -> None:
        """Ray's proxy listens."""

    async def stop(self, grace: float | None) -> None:
        """Ray's proxy stops first."""

    def handler(self, path: str) -> Handler:
        """Of one method, from bytes to bytes."""
        return self._routes.handler(path)
