"""The nodes of a decoder-only ONNX file inside our own graphs, over static caches.

Optimum's decoders take keys and values of one length for all rows. So the rows at one position run together, and a Loop runs
group after group; the file's own nodes are kept in its body. Shapes: `B` rows of which `R` are in a group, `S` tokens of the
chunk, `P` positions before it, `H` heads of `D` dimensions.
"""

from collections.abc import Sequence
from pathlib import Path

from onnx import GraphProto, ModelProto, TensorProto, helper, version_converter
from onnx.helper import make_tensor_value_info as value_info

from triptych_export.graphs.lazy_graph import Graph, hollow_tensor
from triptych_export.onnx_files.adapters import FLOAT, IDS, INT64, MASK, POSITIONS, PREFIX, Nodes, prefixed
from triptych_export.onnx_files.checks import opset_of
from triptych_export.onnx_files.decoder import DOMAIN, LOGITS, PAST, PRESENT, OnnxGpt, cache_values

INT64_MAX = 2**63 - 1


def insert_decoder(traced: Graph, decoder: OnnxGpt) -> Graph:
    """Replace the operator that `OnnxGpt.trace` added by the file's nodes."""
    own = _converted(decoder.graph, decoder.file.path.parent, opset_of(traced.model))
    model, body, config = traced.model, traced.model.graph, decoder.config
    [place] = [index for index, node in enumerate(body.node) if node.domain == DOMAIN]
    tokens, starts, *caches = body.node[place].input
    logits, *present = body.node[place].output
    n, inner = Nodes("decoder"), Nodes("group")
    size, first = n("Shape", tokens), n.cast(starts, INT64)  # [B, S] and [B]
    rows, length = n("Gather", size, n.constant(0)), n("Gather", size, n.constant(1))
    groups = n("Unique", first)
    # The groups write their logits, and their keys and values of the new tokens, into these.
    wide = n("Concat", size, n.constant([config.output_count]), axis=0)
    deep = n("Concat", *(n("Unsqueeze", one, n.constant([0])) for one in (rows, n.constant(config.heads), length)), axis=0)
    deep = n("Concat", deep, n.constant([config.head_dim]), axis=0)
    empty = n("ConstantOfShape", wide), n("ConstantOfShape", deep)
    new = [f"decoder/new_{index}" for index in range(len(caches))]
    body_of_loop = _group(inner, own.model, decoder, (tokens, first, groups, length, *caches))
    given = n("Size", groups), "", empty[0], *(empty[1] for _ in caches)
    n.nodes.append(helper.make_node("Loop", given, [logits, *new], "decoder/Loop", body=body_of_loop))
    chunk = n("Unsqueeze", n("Range", n.constant(0), length, n.constant(1)), n.constant([0]))
    reached = n("Add", n("Unsqueeze", first, n.constant([1])), chunk)  # [B, S]
    places = _places(n, n("Range", n.constant(0), rows, n.constant(1)), reached, config.heads)
    for cache, values, out in zip(caches, new, present, strict=True):
        n("ScatterND", cache, places, values, out=out)  # in place, as both are bound to the same memory
    nodes = [*body.node[:place], *n.nodes, *body.node[place + 1 :]]
    del body.node[:]
    body.node.extend(nodes)
    body.initializer.extend([*n.constants, *inner.constants, *own.model.graph.initializer])
    imports = {one.domain: one for one in (*own.model.opset_import, *model.opset_import) if one.domain != DOMAIN}
    del model.opset_import[:]
    model.opset_import.extend(imports.values())
    model.functions.extend(own.model.functions)
    return Graph(model, {**traced.tensors, **own.tensors})


def _group(n: Nodes, model: ModelProto, decoder: OnnxGpt, outer: Sequence[str]) -> GraphProto:
    """Make the body of the Loop: one group of rows at the same position."""
    (tokens, first, groups, length, *caches), layers = outer, decoder.config.layers
    start, one = n("Gather", groups, "turn"), n.constant(1)
    rows, end = n("Squeeze", n("NonZero", n("Equal", first, start)), n.constant([0])), n("Add", start, length)
    count, begin = n("Shape", rows), n("Unsqueeze", start, n.constant([0]))
    places = _places(n, rows, n("Unsqueeze", n("Range", n.constant(0), start, one), n.constant([0])), decoder.config.heads)
    ids = n("Gather", tokens, rows)
    values = {
        IDS[0]: ids,
        MASK[0]: n("Expand", one, n("Concat", count, n("Unsqueeze", end, n.constant([0])), axis=0)),
        POSITIONS[0]: n("Expand", n("Range", start, end, one), n("Shape", ids)),
        **{name: n("GatherND", cache, places) for name, cache in zip(cache_values(layers, PAST), caches, strict=True)},
    }
    for given in decoder.graph.graph.input:
        n.cast(values[given.name], given.type.tensor_type.elem_type, out=PREFIX + given.name)
    before = len(n.nodes)
    results = [n.cast(PREFIX + LOGITS, FLOAT)]
    for name in cache_values(layers, PRESENT):
        results.append(n.cast(n("Slice", PREFIX + name, begin, n.constant([INT64_MAX]), n.constant([2])), FLOAT))
    states = [f"group/state_{index}" for index in range(len(results))]
    chosen = n("Unsqueeze", rows, n.constant([1]))
    outs = [n("ScatterND", state, chosen, result) for state, result in zip(states, results, strict=True)]
    ranks = [3, *[4] * len(caches)]
    inputs, outputs = (
        [value_info(name, FLOAT, [None] * rank) for name, rank in zip(names, ranks, strict=True)] for names in (states, outs)
    )
    inputs = [value_info("turn", INT64, []), value_info("go", TensorProto.BOOL, []), *inputs]
    outputs = [value_info(n("Identity", "go"), TensorProto.BOOL, []), *outputs]
    return helper.make_graph([*n.nodes[:before], *model.graph.node, *n.nodes[before:]], "group", inputs, outputs)


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


def _converted(model: ModelProto, folder: Path, opset: int) -> Graph:
    """Convert a model to an opset and give its values a prefix; meanwhile its large weights are inputs, without values."""
    graph = Graph.of_file(model, folder)
    body, tensors = graph.model.graph, graph.tensors
    large = [hollow_tensor(one.name, one.data_type, one.dims) for one in body.initializer if one.name in tensors]
    for index in reversed(range(len(body.initializer))):
        if body.initializer[index].name in tensors:
            del body.initializer[index]
    body.input.extend(value_info(one.name, one.data_type, one.dims) for one in large)
    hollow = graph.model if opset_of(model) == opset else version_converter.convert_version(graph.model, opset)
    hollow = prefixed(hollow)
    hollow.graph.initializer.extend(hollow_tensor(PREFIX + one.name, one.data_type, one.dims) for one in large)
    return Graph(hollow, {PREFIX + name: maker for name, maker in tensors.items()})
