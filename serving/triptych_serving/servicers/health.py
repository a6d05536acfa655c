"""grpc.health.v1.Health: Check and Watch, of the server and of each service."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from triptych_serving.errors import NotFoundError
from triptych_serving.servicers.rpc import Context

HEALTH: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
Status = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """All services share one state: they serve once the models are loaded, until the server stops.

    The servicer of grpcio-health-checking forgets its other watchers when one leaves, and holds up the server's end.

    Args:
        services: full names; "" is the server as a whole.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        self._serving = False
        self._stopped = False
        self._changed = asyncio.Event()  # a new one after each change

    def start(self) -> None:
        """Everything can be asked now."""
        self._serving = True
        self._tell()

    def stop(self) -> None:
        """Nothing more will be accepted: watchers hear of it, then their calls end."""
        self._serving, self._stopped = False, True
        self._tell()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            raise NotFoundError(f"service {request.service!r} is not here; there are: {', '.join(sorted(self._services))}")
        return self._response(request.service)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        sent = None
        while True:
            # Taken together: a stop while a response is on its way out is told in the next round.
            changed, stopped, response = self._changed, self._stopped, self._response(request.service)
            if response != sent:
                yield response
                sent = response
            if stopped:
                return
            await changed.wait()

    def _response(self, service: str) -> health_pb2.HealthCheckResponse:
        if service not in self._services:
            return Status(status=Status.SERVICE_UNKNOWN)
        return Status(status=Status.SERVING if self._serving else Status.NOT_SERVING)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
