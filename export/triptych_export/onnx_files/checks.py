"""Checks of an ONNX file before anything runs it: format, operators, sizes, and files that it refers to.

Source: https://github.com/onnx/onnx/blob/main/docs/IR.md and ExternalData.md
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from triptych_export.errors import SourceError

MOST_MESSAGE_BYTES = (2 << 30) - 1  # of a protobuf message
OLDEST_OPSET = 7
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})  # that ONNX Runtime implements in every build
NCHWC = "com.microsoft.nchwc"  # which the runtime replaces convolutions by while it loads a file, and may save
OPTIMIZED = "is of a file that ONNX Runtime optimized for one processor: export the original file"
DEEPEST = 32  # nested graphs
MOST_FAULTS = 10  # shown
MOST_PACKED = 4  # values in one element of a typed field: of 2-bit types
EXTERNAL = TensorProto.EXTERNAL
BITS: Mapping[int, int] = {
    TensorProto.UINT4: 4,
    TensorProto.INT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.UINT2: 2,
    TensorProto.INT2: 2,
}


def read_model(path: Path) -> ModelProto:
    """Read and check an ONNX file; tensors in other files stay references.

    Raises:
        SourceError: the file is no ONNX model, or must not be run; lists all faults.
    """
    try:
        size = path.stat().st_size
        if size > MOST_MESSAGE_BYTES:
            most = f"at most {MOST_MESSAGE_BYTES:,}; weights can be in other files (external data)"
            raise SourceError(f"{path}: {size:,} bytes, a model file has {most}")
        model = onnx.load(str(path), load_external_data=False)
    except (OSError, DecodeError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read as an ONNX model: {' '.join(str(error).split())}") from error
    faults = list(_faults(model, path))
    if faults:
        more = f"; and {len(faults) - MOST_FAULTS:,} more" if len(faults) > MOST_FAULTS else ""
        raise SourceError(f"{path}: {'; '.join(faults[:MOST_FAULTS])}{more}")
    return model


def opset_of(model: ModelProto) -> int:
    """Return the version of the standard operators; 0 if the model has none of them."""
    return max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0)


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that a caller gives: up to IR version 3, initializers are listed among them."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in stored]


def replace_fields(message: ModelProto | GraphProto, **fields: Sequence[Message]) -> None:
    """Replace the values of repeated fields, given by their names."""
    for name, values in fields.items():
        del getattr(message, name)[:]
        getattr(message, name).extend(values)


def keep_needed(graph: GraphProto, outputs: Sequence[str]) -> None:
    """Keep only some outputs of a graph, and the nodes, inputs and initializers that these need."""
    needed, nodes = set(outputs), list[NodeProto]()
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(_read_by(node))
    kept = {name: [one for one in getattr(graph, name) if one.name in needed] for name in ("input", "output", "initializer")}
    replace_fields(graph, **kept, node=nodes[::-1])


def _read_by(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node and the graphs in it read."""
    yield from node.input
    for attribute in node.attribute:
        for inner in graphs_of(attribute):
            for each in inner.node:
                yield from _read_by(each)
            yield from (one.name for one in inner.output)


def tensors_of(graph: GraphProto | Sequence[NodeProto]) -> Iterator[TensorProto]:
    """Yield all stored tensors: initializers and constants, those of nested graphs included."""
    nodes = graph.node if isinstance(graph, GraphProto) else graph
    if isinstance(graph, GraphProto):
        yield from graph.initializer
    for node in nodes:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.type == AttributeProto.TENSOR else attribute.tensors)
            for inner in graphs_of(attribute):
                yield from tensors_of(inner)


def tensor_bytes(tensor: TensorProto) -> int:
    """Size in bytes of a tensor's values in a file, where those of 2 or 4 bits are packed; of strings 8 bytes each.

    Raises:
        KeyError: the type is unknown.
    """
    bits = BITS.get(tensor.data_type) or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return -(-prod(tensor.dims) * bits // 8)


def graphs_of(attribute: AttributeProto) -> Sequence[GraphProto]:
    """Return the graphs in an attribute of a node."""
    return [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs


def _faults(model: ModelProto, path: Path) -> Iterator[str]:
    if not model.graph.output or not model.graph.node:
        yield "it has no graph"
    opset = opset_of(model)
    if 0 < opset < OLDEST_OPSET:
        yield f"opset {opset}, at least {OLDEST_OPSET} is needed; convert it with onnx.version_converter"
    local = {(function.domain, function.name) for function in model.functions}
    yield from dict.fromkeys(_node_faults(model.graph, local))
    for function in model.functions:
        yield from dict.fromkeys(_node_faults(function.node, local))
    for tensor in (*tensors_of(model.graph), *(one for function in model.functions for one in tensors_of(function.node))):
        if fault := _tensor_fault(tensor, path):
            yield f"tensor {tensor.name!r:.60}: {fault}"


def _node_faults(graph: GraphProto | Sequence[NodeProto], local: set[tuple[str, str]], depth: int = 0) -> Iterator[str]:
    if depth > DEEPEST:
        yield f"graphs are nested more than {DEEPEST} deep"
        return
    if isinstance(graph, GraphProto) and graph.sparse_initializer:
        yield "it has sparse initializers, which are not supported"
    for node in graph.node if isinstance(graph, GraphProto) else graph:
        if node.domain not in DOMAINS and (node.domain, node.op_type) not in local:
            problem = OPTIMIZED if node.domain == NCHWC else "is not part of ONNX Runtime"
            yield f"operator {node.op_type!r:.40} of the domain {node.domain!r:.40} {problem}"
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                yield from _node_faults(inner, local, depth + 1)


def _tensor_fault(tensor: TensorProto, model: Path) -> str:
    """Describe what is wrong with a tensor's size or place; empty if nothing is."""
    if min(tensor.dims, default=1) < 0:
        return f"dimensions {list(tensor.dims)}"
    try:
        size = tensor_bytes(tensor)
    except (KeyError, TypeError, ValueError):
        return f"unknown type {tensor.data_type}"
    if tensor.data_location == EXTERNAL:
        return _external_fault(tensor, size, model)
    if tensor.data_type == TensorProto.STRING:
        held, wanted = len(tensor.string_data), prod(tensor.dims)
    elif tensor.HasField("raw_data"):
        held, wanted = len(tensor.raw_data), size
    else:
        counts = len(tensor.float_data), len(tensor.int32_data), len(tensor.int64_data), len(tensor.double_data)
        held, wanted = max(*counts, len(tensor.uint64_data)) * MOST_PACKED, prod(tensor.dims)
        return "" if held >= wanted else f"it declares {wanted:,} values and holds at most {held:,}"
    return "" if held == wanted else f"it declares {wanted:,} bytes and holds {held:,}"


def _external_fault(tensor: TensorProto, size: int, model: Path) -> str:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    parts = PurePosixPath(location.replace("\\", "/"))
    if not location or parts.is_absolute() or ".." in parts.parts or ":" in location:
        return f"its values are in {location!r:.80}, must be in a file beside the model"
    path = (model.parent / parts).resolve()
    beside = path.is_relative_to(model.parent.resolve()) or path.parent == model.resolve().parent  # the hub's cache has links
    if not beside or not path.is_file():
        return f"its values are in {location!r:.80}, which is not a file beside the model"
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or size)
    except ValueError:
        return f"offset {entries.get('offset')!r:.30} or length {entries.get('length')!r:.30} is no number"
    if offset < 0 or length != size or offset + size > path.stat().st_size:
        return f"it needs {size:,} bytes from byte {offset:,} of {location!r:.80}, which has {path.stat().st_size:,}"
    return ""
