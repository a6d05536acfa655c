"""grpc.health.v1.Health: Check and Watch, of the server and of each service."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import TypeAlias

from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from triptych_serving.errors import NotFoundError
from triptych_serving.repository.registry import Registry
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.descriptors import ALL_SERVICES, SERVICE_BY_CAPABILITY, services_of

HEALTH_SERVICE: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
SERVICES = frozenset({"", *ALL_SERVICES})  # "" is the server as a whole
WATCH_SECONDS = 3_600.0  # after this a watch ends; clients begin another one
TASK_SERVICES = frozenset(SERVICE_BY_CAPABILITY.values())
HealthRequest: TypeAlias = health_pb2.HealthCheckRequest
HealthResponse: TypeAlias = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Report the health of the server and its services.

    The service of a task is SERVING while a loaded model can serve it; the others, and the server as a whole, from the end of
    start-up until the server stops. The servicer of grpcio-health-checking is not used: it forgets its other
    watchers when one leaves, and delays shutdown.
    """

    def __init__(self) -> None:
        self._serving: frozenset[str] = frozenset()
        self._stopped = False
        self._changed = asyncio.Event()  # replaced after each change

    def update(self, registry: Registry) -> None:
        """Report the health for these loaded models."""
        of_models = frozenset(name for model in registry.ready for name in services_of(model.capabilities))
        serving = (SERVICES - TASK_SERVICES) | of_models
        if serving != self._serving and not self._stopped:
            self._serving = serving
            self._notify()

    @property
    def ready(self) -> bool:
        """True while the server as a whole is SERVING."""
        return "" in self._serving

    def stop(self) -> None:
        """Report NOT_SERVING for everything, and end the calls of watchers."""
        self._serving, self._stopped = frozenset(), True
        self._notify()

    async def Check(self, request: HealthRequest, context: GrpcContext) -> HealthResponse:
        if request.service not in SERVICES:
            known = ", ".join(sorted(SERVICES - {""}))
            raise NotFoundError(f"service {request.service!r} is unknown; there are: {known}")
        return self._response(request.service)

    async def Watch(self, request: HealthRequest, context: GrpcContext) -> AsyncIterator[HealthResponse]:
        sent, last = None, monotonic() + WATCH_SECONDS
        while True:
            # Read together: a stop while a response is being sent is reported in the next round.
            changed, stopped, response = self._changed, self._stopped, self._response(request.service)
            if response != sent:
                yield response
                sent = response
            if stopped:
                return
            try:
                await asyncio.wait_for(changed.wait(), last - monotonic())
            except TimeoutError:
                return

    def _response(self, service: str) -> HealthResponse:
        if service not in SERVICES:
            return HealthResponse(status=HealthResponse.SERVICE_UNKNOWN)
        serving = service in self._serving
        return HealthResponse(status=HealthResponse.SERVING if serving else HealthResponse.NOT_SERVING)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
