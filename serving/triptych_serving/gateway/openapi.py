"""The OpenAPI document: every method of `triptych.v1` from its descriptor, and the routes of the other APIs."""

import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor

from triptych.version import __version__
from triptych_serving.gateway.route import Api
from triptych_serving.rpc.descriptors import ALL_SERVICES, DESCRIPTORS

PREFIX = "triptych.v1."
# As protobuf's JSON writes them.
PRIMITIVES: dict[int, dict[str, str]] = {
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_UINT32: {"type": "integer", "format": "uint32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.TYPE_UINT64: {"type": "string", "format": "uint64"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
}


def describe(apis: Iterable[Api]) -> dict[str, Any]:
    """Return the document; `apis` are those beside the Connect protocol."""
    schemas = _Schemas()
    paths: dict[str, Any] = {}
    for service in ALL_SERVICES:
        if service.startswith(PREFIX):
            for method in DESCRIPTORS.FindServiceByName(service).methods:
                if not method.client_streaming and not method.server_streaming:
                    paths[f"/{service}/{method.name}"] = {"post": schemas.operation(service, method)}
    for api in apis:
        for route in api.routes:
            operation: dict[str, Any] = {
                "tags": [api.name],
                "summary": route.summary,
                "responses": {"200": {"description": "OK"}},
            }
            if names := re.findall(r"{(\w+)}", route.path):
                schema = {"in": "path", "required": True, "schema": {"type": "string"}}
                operation["parameters"] = [{"name": name, **schema} for name in names]
            paths.setdefault(route.path, {}).update({method.lower(): operation for method in route.methods})
    return {
        "openapi": "3.1.0",
        "info": {"title": "Triptych", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas.schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


class _Schemas:
    """The schemas of messages, collected while methods are described."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}

    def operation(self, service: str, method: MethodDescriptor) -> dict[str, Any]:
        """Describe a method."""
        return {
            "tags": [service.removeprefix(PREFIX)],
            "operationId": f"{service.removeprefix(PREFIX)}_{method.name}",
            "requestBody": {"required": True, "content": {"application/json": {"schema": self._reference(method.input_type)}}},
            "responses": {
                "200": {"description": "OK", "content": {"application/json": {"schema": self._reference(method.output_type)}}},
                "default": {"description": "An error: code, message and details."},
            },
        }

    def _reference(self, descriptor: Descriptor | EnumDescriptor) -> dict[str, Any]:
        """Return a reference to the schema of a type, which is added to the document."""
        name = descriptor.full_name
        if name not in self.schemas:
            self.schemas[name] = {}  # before its fields: types may contain themselves
            if isinstance(descriptor, EnumDescriptor):
                self.schemas[name] = {"type": "string", "enum": [value.name for value in descriptor.values]}
            else:
                properties = {field.json_name: self._field(field) for field in descriptor.fields}
                self.schemas[name] = {"type": "object", "properties": properties, "additionalProperties": False}
        return {"$ref": f"#/components/schemas/{name}"}

    def _field(self, field: FieldDescriptor) -> dict[str, Any]:
        found = field.message_type or field.enum_type
        schema = self._reference(found) if found is not None else PRIMITIVES[field.type]
        return {"type": "array", "items": schema} if field.is_repeated else schema
