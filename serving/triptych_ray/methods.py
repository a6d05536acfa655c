"""The methods that Ray's proxies offer to callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

from triptych_serving.rpc.descriptors import ALL_SERVICES, DESCRIPTORS
from triptych_serving.services.health import HEALTH_SERVICE

# A health watch never ends, so a replica with one would never drain. Clients treat its absence as healthy.
LEFT_OUT = frozenset({f"/{HEALTH_SERVICE}/Watch"})

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True)
class RpcMethod:
    """One method of a service."""

    service: str
    name: str
    takes_stream: bool
    gives_stream: bool

    @property
    def path(self) -> str:
        """Path in gRPC: "/triptych.v1.TranslationService/Translate"."""
        return f"/{self.service}/{self.name}"

    def handler(self, servicer: Any) -> Handler:
        """Return a handler from bytes to bytes: the replica parses requests, and rejects malformed ones."""
        behaviour = getattr(servicer, self.name)
        if self.takes_stream:
            return grpc.stream_stream_rpc_method_handler(behaviour)
        if self.gives_stream:
            return grpc.unary_stream_rpc_method_handler(behaviour)
        return grpc.unary_unary_rpc_method_handler(behaviour)


def _methods(services: Sequence[str]) -> Iterator[RpcMethod]:
    for service in services:
        found: Sequence[MethodDescriptor] = DESCRIPTORS.FindServiceByName(service).methods
        for each in found:
            method = RpcMethod(service, each.name, each.client_streaming, each.server_streaming)
            if method.path not in LEFT_OUT:
                yield method


METHODS = tuple(_methods((*ALL_SERVICES, HEALTH_SERVICE)))


def add_services(servicer: Any, server: aio.Server) -> None:
    """Register all methods with the servicer of a proxy; for Ray's `grpc_servicer_functions`."""
    for service in (*ALL_SERVICES, HEALTH_SERVICE):
        handlers = {method.name: method.handler(servicer) for method in METHODS if method.service == service}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_registered_method_handlers(service, handlers)
