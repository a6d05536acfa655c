"""A server whose calls come from somebody else's port."""

from __future__ import annotations

from typing import Any

from triptych_ray.transport import Transport
from triptych_serving.rpc.dispatch import Router
from triptych_serving.server import Server


class PortlessServer(Server):
    """The server with all that it has, but Transport where gRPC's part would be."""

    transport: Transport

    def _make_server(self, routes: Router) -> Any:
        self.transport = Transport(routes)
        return self.transport

    def _bind(self) -> None:
        """Ray's proxies have the ports."""
