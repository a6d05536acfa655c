"""The methods that Ray's proxies offer to callers."""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

from triptych_serving.rpc.descriptors import ALL_SERVICES, DESCRIPTORS
from triptych_serving.services.health import HEALTH_SERVICE

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

# A health watch never ends, so a replica with one would never drain. Clients treat its absence as healthy.
LEFT_OUT = f"/{HEALTH_SERVICE}/Watch"


def path_of(method: MethodDescriptor) -> str:
    """Return a method's path in gRPC: "/triptych.v1.TranslationService/Translate"."""
    return f"/{method.containing_service.full_name}/{method.name}"


SERVICES = (*ALL_SERVICES, HEALTH_SERVICE)
METHODS: tuple[MethodDescriptor, ...] = tuple(
    method for service in SERVICES for method in DESCRIPTORS.FindServiceByName(service).methods if path_of(method) != LEFT_OUT
)


def _handler(method: MethodDescriptor, servicer: Any) -> Handler:
    """Return a handler from bytes to bytes: the replica parses requests, and rejects malformed ones."""
    behaviour = getattr(servicer, method.name)
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(behaviour)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(behaviour)
    return grpc.unary_unary_rpc_method_handler(behaviour)


def add_services(servicer: Any, server: aio.Server) -> None:
    """Register all methods with the servicer of a proxy; for Ray's `grpc_servicer_functions`."""
    for service in SERVICES:
        handlers = {each.name: _handler(each, servicer) for each in METHODS if each.containing_service.full_name == service}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_registered_method_handlers(service, handlers)
