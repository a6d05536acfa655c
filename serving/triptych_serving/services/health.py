"""grpc.health.v1.Health: Check and Watch, of the server and of each service."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from triptych_serving.errors import NotFoundError
from triptych_serving.repository.registry import Registry
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.descriptors import SERVICE_BY_CAPABILITY, services_of

HEALTH: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
TASKS = frozenset(SERVICE_BY_CAPABILITY.values())
Status = health_pb2.HealthCheckResponse


def answering(registry: Registry) -> frozenset[str]:
    """The services of tasks that one of the loaded models is for."""
    return frozenset(name for model in registry.ready for name in services_of(model.capabilities))


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The service of a task serves while a loaded model can answer it; the others, and the server as a whole, once the models
    of the start are loaded. All that until the server stops.

    The servicer of grpcio-health-checking forgets its other watchers when one leaves, and holds up the server's end.

    Args:
        services: full names; "" is the server as a whole.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        self._serving: frozenset[str] = frozenset()
        self._stopped = False
        self._changed = asyncio.Event()  # a new one after each change

    def show(self, registry: Registry) -> None:
        """These models are loaded now."""
        serving = (self._services - TASKS) | answering(registry)
        if serving != self._serving and not self._stopped:
            self._serving = serving
            self._tell()

    @property
    def ready(self) -> bool:
        """Whether the server as a whole serves."""
        return "" in self._serving

    def stop(self) -> None:
        """Nothing more will be accepted: watchers hear of it, then their calls end."""
        self._serving, self._stopped = frozenset(), True
        self._tell()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: GrpcContext) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            raise NotFoundError(f"service {request.service!r} is not here; there are: {', '.join(sorted(self._services))}")
        return self._response(request.service)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: GrpcContext
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
        return Status(status=Status.SERVING if service in self._serving else Status.NOT_SERVING)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
