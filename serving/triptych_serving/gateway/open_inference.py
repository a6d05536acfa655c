"""The Open Inference Protocol v2 over HTTP, with Triton's extension for binary tensors."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from starlette.responses import Response

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.bundle.manifest.tensors import BYTES, NUMPY
from triptych_serving.gateway.call import TENSOR_TOKENS, HttpCall, Json, as_object, invalid, parse_object
from triptych_serving.gateway.messages import JsonResponse, to_dict, to_json
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.services.oip.tensors import encode, unpack

# Types of JSON values by numpy's kind of number.
KINDS: Mapping[str, tuple[type, ...]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "O": (str,)}
Wanted = Callable[[str], bool]  # whether an output is wanted in binary

HEADER_LENGTH = "inference-header-content-length"
BINARY_SIZE, BINARY_DATA, BINARY_OUTPUT = "binary_data_size", "binary_data", "binary_data_output"


def _query(request: Callable[..., Message], member: str = "") -> Any:
    """Make the function of a route that sends the names in its path, and returns the response, or a member of it, as JSON.

    A member that is not a message tells whether something is ready, and is sent with its name.
    """

    async def query(call: HttpCall) -> dict[str, Any]:
        found = await call.ask(request(**call.request.path_params))
        value = getattr(found, member) if member else found
        if value is False:
            raise RpcError.of(grpc.StatusCode.UNAVAILABLE, "not ready")
        return to_dict(found if value is True else value, plain=True)

    return query


def _change(request: Callable[..., Any]) -> Any:
    """Make the function of a route that loads or unloads the model in its path; the body may have parameters."""

    async def change(call: HttpCall) -> dict[str, Any]:
        message = request(**call.request.path_params)
        _set_parameters(message.parameters, (await _given(call)).take("parameters", dict, {}))
        return to_dict(await call.ask(message), plain=True)

    return change


async def _given(call: HttpCall) -> Json:
    """Return the JSON of the body, which may be empty."""
    data = await call.body() or b"{}"
    return await call.offload(len(data), parse_object, data, call.parts.json_tokens(False))


async def index(call: HttpCall) -> list[Any]:
    found = await call.ask(pb.RepositoryIndexRequest(ready=(await _given(call)).take("ready", bool, False)))
    return [to_dict(one, plain=True) for one in found.models]


async def infer(call: HttpCall) -> Response:
    """Run a model. Tensors are JSON lists, or follow the JSON as bytes."""
    data, length = await call.body(), call.request.headers.get(HEADER_LENGTH)
    if length is not None and not (length.isascii() and length.isdigit() and len(length) <= 20 and int(length) <= len(data)):
        raise invalid(f"{HEADER_LENGTH}: {length[:40]!r} is not a number of bytes of the body")
    size = len(data) if length is None else int(length)
    path = call.request.path_params
    request, wanted = await call.offload(
        len(data), request_from, data[:size], data[size:], path["name"], path.get("version", "")
    )
    found = await call.ask(request)
    return await call.offload(found.ByteSize(), response_to, found, wanted)


def request_from(head: bytes, binary: bytes, name: str, version: str = "") -> tuple[pb.ModelInferRequest, Wanted]:
    """Convert a request, and return a function that tells whether an output is wanted in binary.

    Raises:
        RpcError: it is malformed.
    """
    given = parse_object(head, TENSOR_TOKENS)
    request = pb.ModelInferRequest(model_name=name, model_version=version, id=given.take("id", str, ""))
    parameters = given.take("parameters", dict, {})
    by_default = _take_flag(parameters, BINARY_OUTPUT, False)
    _set_parameters(request.parameters, parameters)
    rest = binary
    for number, one in enumerate(given.take("inputs", list)):
        rest = _add_input(request, as_object(one, f"inputs[{number}]"), rest)
    if rest:
        raise invalid(f"body: {len(rest):,} bytes after the last input")
    wanted = {}
    for number, one in enumerate(given.take("outputs", list, [])):
        output = as_object(one, f"outputs[{number}]")
        own = output.take("parameters", dict, {})
        wanted[output.take("name", str)] = _take_flag(own, BINARY_DATA, by_default)
        _set_parameters(request.outputs.add(name=output["name"]).parameters, own)
    return request, lambda output: wanted.get(output, by_default)


def response_to(found: pb.ModelInferResponse, wanted: Wanted) -> Response:
    """Convert a response: JSON, and the tensors that are wanted in binary after it.

    Raises:
        RpcError: JSON cannot have a tensor's values.
    """
    outputs, binary = [], []
    for output, raw in zip(found.outputs, found.raw_output_contents, strict=True):
        tensor: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        if wanted(output.name):
            tensor["parameters"] = {BINARY_SIZE: len(raw)}
            binary.append(raw)
        else:
            tensor["data"] = _values(output, raw)
        outputs.append(tensor)
    body: dict[str, Any] = {"model_name": found.model_name, "model_version": found.model_version, "outputs": outputs}
    if found.id:
        body["id"] = found.id
    if found.parameters:
        body["parameters"] = {
            name: getattr(one, str(one.WhichOneof("parameter_choice"))) for name, one in found.parameters.items()
        }
    if not binary:
        return JsonResponse(body)
    head = to_json(body)
    return Response(b"".join((head, *binary)), headers={HEADER_LENGTH: str(len(head))}, media_type="application/octet-stream")


def _add_input(request: pb.ModelInferRequest, given: Json, rest: bytes) -> bytes:
    """Add an input tensor; returns the binary data that belongs to the inputs after it."""
    name, datatype = given.take("name", str), given.take("datatype", str)
    shape = given.take("shape", list)
    if not all(type(one) is int and 0 <= one < 2**31 for one in shape):
        raise invalid(f"{name}: shape: must be a list of sizes")
    tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
    parameters = given.take("parameters", dict, {})
    size = parameters.pop(BINARY_SIZE, None)
    _set_parameters(tensor.parameters, parameters)
    if size is None:
        request.raw_input_contents.append(_raw(name, datatype, given.take("data", list, [] if parameters else None)))
        return rest
    if "data" in given:
        raise invalid(f"{name}: it has data and {BINARY_SIZE}, send one of them")
    if type(size) is not int or not 0 <= size <= len(rest):
        raise invalid(f"{name}: {BINARY_SIZE}: {size!r:.40}, but {len(rest):,} bytes follow")
    request.raw_input_contents.append(rest[:size])
    return rest[size:]


def _take_flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    """Remove a parameter that is true or false. Raises RpcError: it is neither."""
    value = parameters.pop(name, default)
    if not isinstance(value, bool):
        raise invalid(f"parameters.{name}: {value!r:.40}, must be true or false")
    return value


def _raw(name: str, datatype: str, data: list[Any]) -> bytes:
    """Return the raw contents of a tensor whose values are a list, nested or not."""
    values = list(_flat(data))
    kinds = KINDS[np.dtype(NUMPY[datatype]).kind] if datatype in NUMPY else ()
    try:
        with np.errstate(over="raise"):
            if all(type(one) in kinds for one in values):
                return (
                    bytes(encode(values, 1, datatype)[1]) if datatype == BYTES else np.array(values, NUMPY[datatype]).tobytes()
                )
    except (KeyError, OverflowError, FloatingPointError):
        pass
    raise invalid(f"{name}: data: not values of the datatype {datatype[:40]!r}")


def _flat(data: list[Any]) -> Iterator[Any]:
    lists = [iter(data)]  # that enclose the value; without recursion, which would take time for each of them and each value
    while lists:
        for one in lists[-1]:
            if isinstance(one, list):
                lists.append(iter(one))
                break
            yield one
        else:
            lists.pop()


def _values(output: pb.ModelInferResponse.InferOutputTensor, raw: bytes) -> list[Any]:
    if output.datatype == BYTES:
        try:
            return [one.decode() for one in unpack("", raw, int(np.prod(output.shape)))]
        except UnicodeDecodeError:
            raise _not_json(output.name, "bytes that are no text") from None
    values = np.frombuffer(raw, NUMPY[output.datatype])
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise _not_json(output.name, "values that are infinite or not a number")
    return list(values.tolist())


def _not_json(name: str, what: str) -> RpcError:
    return invalid(f"outputs: {name} has {what}, which JSON cannot have; request it with the parameter {BINARY_DATA}")


def _set_parameters(target: Any, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        member = _member(value)
        if not hasattr(target[name], member):
            problem = "must be a string, a boolean, or a number of at most 64 bits; write a list as a string of JSON"
            raise invalid(f"parameters.{name}: {problem}")
        setattr(target[name], member, value)


def _member(value: Any) -> str:
    """Return the member of a parameter that holds a value; empty if there is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "int64_param" if -(2**63) <= value < 2**63 else "uint64_param" if 0 <= value < 2**64 else ""
    return {bool: "bool_param", float: "double_param", str: "string_param"}.get(type(value), "")


def _versioned(suffix: str, function: Any, methods: tuple[str, ...], summary: str) -> tuple[ApiRoute, ApiRoute]:
    return (
        ApiRoute(f"/v2/models/{{name}}{suffix}", function, methods, summary),
        ApiRoute(f"/v2/models/{{name}}/versions/{{version}}{suffix}", function, methods, summary),
    )


GET, POST = ("GET",), ("POST",)
ready = _query(pb.ServerReadyRequest, "ready")
METADATA = _query(pb.ModelMetadataRequest)
LOAD, UNLOAD = map(_change, (pb.RepositoryModelLoadRequest, pb.RepositoryModelUnloadRequest))
STATISTICS = _query(pb.ModelStatisticsRequest)
API = Api(
    "Open Inference Protocol",
    (
        ApiRoute("/v2", _query(pb.ServerMetadataRequest), GET, "Describe the server."),
        ApiRoute("/v2/health/live", _query(pb.ServerLiveRequest, "live"), GET, "Whether the server runs."),
        ApiRoute("/v2/health/ready", ready, GET, "Whether the server is ready."),
        ApiRoute("/v2/repository/index", index, POST, "List models."),
        ApiRoute("/v2/repository/models/{model_name}/load", LOAD, POST, "Load a model."),
        ApiRoute("/v2/repository/models/{model_name}/unload", UNLOAD, POST, "Unload a model."),
        ApiRoute("/v2/models/stats", STATISTICS, GET, "Statistics."),
        *_versioned("", METADATA, GET, "Describe a model's tensors."),
        *_versioned("/ready", _query(pb.ModelReadyRequest, "ready"), GET, "Whether a model is ready."),
        *_versioned("/config", _query(pb.ModelConfigRequest, "config"), GET, "Describe a model as Triton does."),
        *_versioned("/stats", STATISTICS, GET, "Statistics."),
        *_versioned("/infer", infer, POST, "Run a model."),
    ),
)
