"""The nodes of ONNX files of decoders, and of their encoders, inside our own graphs, over static caches.

Optimum's decoders take keys and values of one length for all rows. So the rows at one position run together, and a Loop runs
group after group; the file's own nodes are kept in its body. Shapes: `B` rows of which `R` are in a group, `S` tokens of the
chunk or of a source, `P` positions before it, `H` heads of `D` dimensions.
"""

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, version_converter
from onnx.helper import make_tensor_value_info as value_info

from triptych_export.graphs.lazy_graph import Graph, hollow_tensor
from triptych_export.onnx_files.adapters import FLOAT, IDS, INT32, INT64, MASK, POSITIONS, PREFIX, Nodes, prefixed
from triptych_export.onnx_files.checks import opset_of, replace_fields
from triptych_export.onnx_files.decoder import (
    CROSS,
    DOMAIN,
    ENCODED,
    LOGITS,
    PAST,
    PRESENT,
    SOURCE_MASK,
    STATES,
    OnnxDecoder,
    OnnxSeq2Seq,
    cache_values,
)

INT64_MAX = 2**63 - 1
FOREIGN = "triptych.foreign"
ENCODER = "encoder/"
IR_VERSION = 10  # the first with opset 21


def encoder_graph(model: OnnxSeq2Seq, opset: int) -> Graph:
    """Make the graph from a source to the cross-attention's keys and values: the encoder, and a part of the decoder.

    Inputs `source` `[B, S]` int64 and `lengths` `[B]` int32, output `memory` `[2L, B, H, S, D]`.
    """
    first = _converted(model.encoder.model, model.encoder.path.parent, opset, ENCODER)
    second = _converted(model.projecting, model.first.path.parent, opset, PREFIX)
    n, nodes, done = Nodes("adapter"), list[NodeProto](), 0
    size = n("Shape", "source")
    rows, length = n("Gather", size, n.constant([0])), n("Gather", size, n.constant(1))
    inside = _inside(n, length, n("Sub", n.cast("lengths", INT64), n.constant(1)))
    token = n("Expand", n.constant(model.config.bos_id), n("Concat", rows, n.constant([1]), axis=0))
    sides: tuple[tuple[Graph, str, dict[str, str]], ...] = (
        (first, ENCODER, {IDS[0]: "source", MASK[0]: inside}),
        (second, PREFIX, {IDS[0]: token, SOURCE_MASK: inside, STATES: ENCODER + ENCODED}),
    )
    for side, prefix, values in sides:
        for given in side.model.graph.input:
            n.cast(values[given.name.removeprefix(prefix)], given.type.tensor_type.elem_type, out=given.name)
        nodes += [*n.nodes[done:], *side.model.graph.node]
        done = len(n.nodes)
    parts = [n.cast(PREFIX + name, FLOAT) for name in cache_values(model.layers, PRESENT, CROSS)]
    n("Concat", *(n("Unsqueeze", part, n.constant([0])) for part in parts), axis=0, out="memory")
    inputs = [value_info("source", INT64, ["B", "S"]), value_info("lengths", INT32, ["B"])]
    shape: list[str | int | None] = [2 * model.layers, "B", model.heads, "S", model.head_dim]
    graph = helper.make_graph([*nodes, *n.nodes[done:]], "encoder", inputs, [value_info("memory", FLOAT, shape)], n.constants)
    made = Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION))
    for part in (first, second):
        _add(made, part)
    return made


def insert_decoder(traced: Graph, decoder: OnnxDecoder) -> Graph:
    """Replace the operator that `OnnxDecoder.trace` added by the file's nodes."""
    own = _converted(decoder.graph, decoder.file.path.parent, opset_of(traced.model), PREFIX)
    body = traced.model.graph
    [place] = [index for index, node in enumerate(body.node) if node.domain == DOMAIN]
    tokens, starts, *given = body.node[place].input
    logits, *present = body.node[place].output
    caches, source, attention = given[: 2 * decoder.layers], given[2 * decoder.layers :], present[2 * decoder.layers :]
    n, inner = Nodes("decoder"), Nodes("group")
    size, first = n("Shape", tokens), n.cast(starts, INT64)  # [B, S] and [B]
    rows, length = n("Gather", size, n.constant(0)), n("Gather", size, n.constant(1))
    groups = n("Unique", first)
    # The groups write their logits, their keys and values of the new tokens, and attention into these.
    one_row = n("Unsqueeze", rows, n.constant([0]))
    wide = n("Concat", size, n.constant([decoder.count]), axis=0)
    deep = n("Concat", one_row, n.constant([decoder.heads]), n("Unsqueeze", length, n.constant([0])), axis=0)
    deep = n("Concat", deep, n.constant([decoder.head_dim]), axis=0)
    empty = [n("ConstantOfShape", wide), *[n("ConstantOfShape", deep)] * len(caches)]
    if attention:
        reach = n("Slice", n("Shape", source[0]), n.constant([2]), n.constant([3]))
        empty.append(n("ConstantOfShape", n("Concat", one_row, n.constant([1]), reach, axis=0)))
    new = [f"decoder/new_{index}" for index in range(len(caches))]
    body_of_loop = _group(inner, own.model, decoder, (tokens, first, groups, length, *caches), source, bool(attention))
    outs = [logits, *new, *attention]
    n.nodes.append(helper.make_node("Loop", [n("Size", groups), "", *empty], outs, "decoder/Loop", body=body_of_loop))
    chunk = n("Unsqueeze", n("Range", n.constant(0), length, n.constant(1)), n.constant([0]))
    reached = n("Add", n("Unsqueeze", first, n.constant([1])), chunk)  # [B, S]
    places = _places(n, n("Range", n.constant(0), rows, n.constant(1)), reached, decoder.heads)
    for cache, values, out in zip(caches, new, present, strict=False):  # the attention follows
        n("ScatterND", cache, places, values, out=out)  # in place, as both are bound to the same memory
    replace_fields(body, node=[*body.node[:place], *n.nodes, *body.node[place + 1 :]])
    body.initializer.extend([*n.constants, *inner.constants])
    _add(traced, own)
    return traced


def _add(graph: Graph, part: Graph) -> None:
    """Add the weights, operator sets and functions of a part whose nodes are in the graph."""
    model, known = graph.model, {one.domain for one in graph.model.opset_import}
    model.graph.initializer.extend(part.model.graph.initializer)
    model.opset_import.extend(one for one in part.model.opset_import if one.domain not in known)
    names = {(one.domain, one.name) for one in model.functions}
    model.functions.extend(one for one in part.model.functions if (one.domain, one.name) not in names)
    graph.tensors.update(part.tensors)


def _group(
    n: Nodes, model: ModelProto, decoder: OnnxDecoder, outer: Sequence[str], source: Sequence[str], attends: bool
) -> GraphProto:
    """Make the body of the Loop: one group of rows at the same position."""
    (tokens, first, groups, length, *caches), layers = outer, decoder.layers
    start, one = n("Gather", groups, "turn"), n.constant(1)
    rows, end = n("Squeeze", n("NonZero", n("Equal", first, start)), n.constant([0])), n("Add", start, length)
    count, begin = n("Shape", rows), n("Unsqueeze", start, n.constant([0]))
    places = _places(n, rows, n("Unsqueeze", n("Range", n.constant(0), start, one), n.constant([0])), decoder.heads)
    ids = n("Gather", tokens, rows)
    pasts = zip(cache_values(layers, PAST, decoder.side), caches, strict=True)
    values = {
        IDS[0]: ids,
        MASK[0]: n("Expand", one, n("Concat", count, n("Unsqueeze", end, n.constant([0])), axis=0)),
        POSITIONS[0]: n("Expand", n("Range", start, end, one), n("Shape", ids)),
        **{name: n("GatherND", cache, places) for name, cache in pasts},
    }
    if source:
        *memory, last = source
        reached = n("Gather", n.cast(last, INT64), rows)
        most = n("Add", n("ReduceMax", reached, keepdims=0), one)
        inside, longest = _inside(n, most, reached), n("Unsqueeze", most, n.constant([0]))
        values[SOURCE_MASK] = inside
        for name, kept in zip(cache_values(layers, PAST, CROSS), memory, strict=True):
            values[name] = n("Slice", n("Gather", kept, rows), n.constant([0]), longest, n.constant([2]))
    for given in model.graph.input:
        n.cast(values[given.name.removeprefix(PREFIX)], given.type.tensor_type.elem_type, out=given.name)
    before = len(n.nodes)
    results = [n.cast(PREFIX + LOGITS, FLOAT)]
    for name in cache_values(layers, PRESENT, decoder.side):
        results.append(n.cast(n("Slice", PREFIX + name, begin, n.constant([INT64_MAX]), n.constant([2])), FLOAT))
    if attends:
        results.append(_attention(n, model, layers, inside, n("Shape", source[0])))
    states = [f"group/state_{index}" for index in range(len(results))]
    chosen = n("Unsqueeze", rows, n.constant([1]))
    outs = [n("ScatterND", state, chosen, result) for state, result in zip(states, results, strict=True)]
    ranks = [3, *[4] * len(caches), 3][: len(results)]
    inputs, outputs = (
        [value_info(name, FLOAT, [None] * rank) for name, rank in zip(names, ranks, strict=True)] for names in (states, outs)
    )
    inputs = [value_info("turn", INT64, []), value_info("go", TensorProto.BOOL, []), *inputs]
    outputs = [value_info(n("Identity", "go"), TensorProto.BOOL, []), *outputs]
    return helper.make_graph([*n.nodes[:before], *model.graph.node, *n.nodes[before:]], "group", inputs, outputs)


def _attention(n: Nodes, model: ModelProto, layers: int, inside: str, memory: str) -> str:
    """Add the mean attention of the last layer to the source, `[R, 1, S]`, or equal weights where the file has no softmax.

    `inside` is the mask of the sources, `memory` the shape of cross-attention keys over the whole capacity.
    """
    if found := attention_of(model, f"{PREFIX}{PAST}.{layers - 1}.{CROSS}key"):
        size = n("Shape", inside)
        rows, length = (n("Slice", size, n.constant([axis]), n.constant([axis + 1])) for axis in (0, 1))
        heads = n("Reshape", n.cast(found, FLOAT), n("Concat", rows, n.constant([-1]), length, axis=0))
        weights = n("ReduceMean", heads, n.constant([1]), keepdims=1)
    else:
        kept = n("Unsqueeze", n.cast(inside, FLOAT), n.constant([1]))
        weights = n("Div", kept, n("ReduceSum", kept, n.constant([2]), keepdims=1))
    more = n("Sub", n("Gather", memory, n.constant([2])), n("Gather", n("Shape", inside), n.constant([1])))
    return n("Pad", weights, n("Concat", n.constant([0] * 5), more, axis=0))


def attention_of(model: ModelProto, key: str) -> str:
    """Return the name of the attention weights over some keys: the first softmax that depends on them; empty if none does."""
    reached = {key}
    for node in model.graph.node:
        if reached.intersection(node.input):
            if node.op_type == "Softmax":
                return str(node.output[0])
            reached.update(node.output)
    return ""


def _inside(n: Nodes, length: str, last: str) -> str:
    """Add the mask `[R, S]` of positions up to each row's last one; `length` is S, `last` `[R]`."""
    numbers = n("Unsqueeze", n("Range", n.constant(0), length, n.constant(1)), n.constant([0]))
    return n("LessOrEqual", numbers, n("Unsqueeze", last, n.constant([1])))


def _places(n: Nodes, rows: str, positions: str, heads: int) -> str:
    """Add nodes that list places in a cache: `[R]` rows and `[R or 1, P]` positions, of all heads -> `[R, H, P, 3]`."""
    length = n("Slice", n("Shape", positions), n.constant([1]), n.constant([2]))
    size = n("Concat", n("Shape", rows), n.constant([heads]), length, n.constant([1]), axis=0)
    parts = (
        n("Reshape", rows, n.constant([-1, 1, 1, 1])),
        n.constant([[[[head]] for head in range(heads)]]),
        n("Unsqueeze", positions, n.constant([1, 3])),
    )
    return n("Concat", *(n("Expand", part, size) for part in parts), axis=-1)


def _converted(model: ModelProto, folder: Path, opset: int, prefix: str) -> Graph:
    """Convert a model to an opset and give its values a prefix; meanwhile its large weights are inputs, without values."""
    graph = Graph.of_file(model, folder)
    body, tensors = graph.model.graph, graph.tensors
    large = [hollow_tensor(one.name, one.data_type, one.dims) for one in body.initializer if one.name in tensors]
    replace_fields(body, initializer=[one for one in body.initializer if one.name not in tensors])
    body.input.extend(value_info(one.name, one.data_type, one.dims) for one in large)
    unknown = [node for node in body.node if not node.domain and not onnx.defs.has(node.op_type)]
    for node in unknown:  # operators of the runtime under the standard's name, which the converter does not know
        node.domain = FOREIGN
    graph.model.opset_import.add(domain=FOREIGN, version=1)
    hollow = graph.model if opset_of(model) == opset else version_converter.convert_version(graph.model, opset)
    for node in hollow.graph.node:
        if node.domain == FOREIGN:
            node.domain = ""
    replace_fields(hollow, opset_import=[one for one in hollow.opset_import if one.domain != FOREIGN])
    hollow = prefixed(hollow, prefix)
    replace_fields(hollow.graph, input=[one for one in hollow.graph.input if one.name.removeprefix(prefix) not in tensors])
    hollow.graph.initializer.extend(hollow_tensor(prefix + one.name, one.data_type, one.dims) for one in large)
    return Graph(hollow, {prefix + name: maker for name, maker in tensors.items()})
