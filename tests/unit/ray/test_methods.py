"""The methods that Ray's proxies offer."""

import inspect
from types import SimpleNamespace
from typing import Any

from triptych_ray.methods import METHODS, add_services, path_of
from triptych_ray.replica import Replica
from triptych_serving.rpc.descriptors import ALL_SERVICES


def test_all_methods_but_the_health_watch_are_offered() -> None:
    assert {method.containing_service.full_name for method in METHODS} == {*ALL_SERVICES, "grpc.health.v1.Health"}
    assert [method.name for method in METHODS if path_of(method).startswith("/grpc.health")] == ["Check"]
    assert len({method.name for method in METHODS}) == len(METHODS)


def test_a_replica_has_each_method_in_the_form_that_ray_expects() -> None:
    for method in METHODS:
        entrance = getattr(Replica, method.name)
        assert inspect.isasyncgenfunction(entrance) is method.server_streaming
        assert inspect.iscoroutinefunction(entrance) is not method.server_streaming
        assert "grpc_context" in inspect.signature(entrance).parameters


def test_proxies_pass_bytes_on() -> None:
    found: dict[str, Any] = {}

    class Server:
        def add_generic_rpc_handlers(self, handlers: Any) -> None:
            [handler] = handlers
            for method in METHODS:
                call = handler.service(SimpleNamespace(method=path_of(method)))
                assert (call is not None) is (method.containing_service.full_name == handler.service_name())

        def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
            found.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    servicer: Any = SimpleNamespace(**{method.name: object() for method in METHODS})
    server: Any = Server()
    add_services(servicer, server)
    assert set(found) == set(map(path_of, METHODS))
    for method in METHODS:
        handler = found[path_of(method)]
        assert (handler.request_deserializer, handler.response_serializer) == (None, None)
        assert (handler.request_streaming, handler.response_streaming) == (method.client_streaming, method.server_streaming)
