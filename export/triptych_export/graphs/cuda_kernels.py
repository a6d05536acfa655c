"""Table of ONNX Runtime's CUDA kernels: a node without a kernel would run on the CPU in every step.

Types: a copy of ONNX Runtime's docs/OperatorKernels.md older than 1.31, of whose CUDA section a part was read, as far as the
graphs here go; GroupQueryAttention's bias from its source. The table was not compared with 1.31's own, but the graphs here were
with the provider of onnxruntime-gpu 1.31.1: where it places their nodes. Entries that none of them needs may be wrong for it.
https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md
"""

from collections.abc import Collection, Mapping

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from triptych_export.graphs.operators import DOMAIN

HALF, FLOAT, BOOL = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.BOOL
INT32, INT64, BYTE = TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8
FLOATS = frozenset({HALF, FLOAT})
NUMBERS = FLOATS | {INT32, INT64}
ANY = NUMBERS | {BOOL, BYTE}

KERNELS: Mapping[tuple[str, str], frozenset[int]] = {  # domain, operator -> types of the inputs that lie on the device
    **{("", name): FLOATS for name in ("Conv", "Div", "Erf", "Exp", "Gelu", "Gemm", "LayerNormalization", "LogSoftmax")},
    **{("", name): FLOATS for name in ("MatMul", "ReduceMean", "Relu", "Sigmoid", "SimplifiedLayerNormalization")},
    **{("", name): FLOATS for name in ("Softmax", "Sqrt", "Tanh")},
    **{("", name): NUMBERS for name in ("Add", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Sub")},
    **{("", name): NUMBERS for name in ("Abs", "Neg", "ReduceMax", "ReduceSum", "TopK")},
    **{("", name): ANY for name in ("Cast", "Concat", "Expand", "Gather", "GatherElements", "Reshape", "ScatterElements")},
    **{("", name): ANY for name in ("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")},
    ("", "ArgMax"): FLOATS,
    ("", "And"): frozenset({BOOL}),
    ("", "Attention"): frozenset({HALF, INT64}),  # lengths are int64
    ("", "Clip"): FLOATS | {INT64},
    ("", "CumSum"): NUMBERS,
    ("", "Pad"): FLOATS | {BOOL},
    ("", "Not"): frozenset({BOOL}),
    ("", "Or"): frozenset({BOOL}),
    ("", "Where"): FLOATS | {BOOL, INT32, INT64},
    (DOMAIN, "Attention"): FLOATS | {INT32},
    (DOMAIN, "GroupQueryAttention"): frozenset({HALF, INT32}),
    (DOMAIN, "MultiHeadAttention"): FLOATS | {INT32},
    (DOMAIN, "RotaryEmbedding"): FLOATS | {INT64},
    (DOMAIN, "SkipLayerNormalization"): FLOATS,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): FLOATS,
}
HOST_INPUTS: Mapping[tuple[str, str], Collection[int]] = {  # which inputs a kernel reads in the host's memory, before it starts
    **{("", name): (1,) for name in ("Expand", "ReduceMax", "ReduceMean", "ReduceSum", "Reshape", "Split", "Squeeze")},
    ("", "Clip"): (1, 2),
    ("", "CumSum"): (1,),
    ("", "Pad"): (1, 2, 3),
    ("", "Slice"): (1, 2, 3, 4),
    ("", "TopK"): (1,),
    ("", "Unsqueeze"): (1,),
    (DOMAIN, "GroupQueryAttention"): (6,),
}


def unfit_nodes(model: ModelProto, inputs: Collection[str] = ()) -> list[str]:
    """List the reasons why a graph cannot be captured as a CUDA graph, one line each.

    Every node has to have a kernel for its types, whose host inputs are constants, or graph inputs among `inputs` that stay as
    they are.
    """
    whole = onnx.shape_inference.infer_shapes(model)
    body = whole.graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*body.input, *body.output, *body.value_info)}
    constants = {tensor.name: tensor.data_type for tensor in body.initializer}
    types |= constants
    _infer_fused(body.node, types)
    return [fault for node in body.node for fault in _faults(node, types, {*constants, *inputs})]


def _infer_fused(nodes: Collection[NodeProto], types: dict[str, int]) -> None:
    """Infer types after ONNX Runtime's own operators, which ONNX's type inference does not know."""
    for node in nodes:
        given = types.get(node.input[1 if node.op_type == "Where" else 0], TensorProto.UNDEFINED)
        for output in node.output:
            if output and not types.get(output):
                types[output] = given


def _faults(node: NodeProto, types: Mapping[str, int], known: Collection[str]) -> list[str]:
    kind = (node.domain, node.op_type)
    place = f"{node.op_type} {node.output[0]}"
    if kind not in KERNELS:
        return [f"{place}: there is no kernel for it"]
    faults = []
    for index, name in enumerate(node.input):
        if not name:
            continue
        if index in HOST_INPUTS.get(kind, ()):
            if name not in known:
                faults.append(f"{place}: input {index} is read by the host and computed by the graph")
        elif types.get(name, TensorProto.UNDEFINED) not in KERNELS[kind]:
            faults.append(f"{place}: no kernel takes {TensorProto.DataType.Name(types.get(name, 0))} as input {index}")
    return faults
