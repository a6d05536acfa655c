"""Nodes that converters of scikit-learn's models (skl2onnx, onnxmltools) write by default, changed to what can be served."""

from onnx import ModelProto, TensorProto, helper

from triptych_export.onnx_files.checks import opset_of

OPSET = 13  # of the standard operators, where a model has none of them
LOCALE = "C.UTF-8"  # containers have no other
REPLACED = ("", "en_US", "en_US.UTF-8")  # the first is the second to the runtime; upper and lower case are the same in all


def replace_maps(model: ModelProto) -> dict[str, tuple[str, ...]]:
    """Let outputs that are a map of probabilities for each row be matrices; returns the labels of their columns."""
    labels: dict[str, tuple[str, ...]] = {}
    for node in model.graph.node:
        if node.op_type == "ZipMap":
            names = [one for attribute in node.attribute for one in (*attribute.strings, *attribute.ints)]
            labels[node.output[0]] = tuple(one.decode() if isinstance(one, bytes) else str(one) for one in names)
            node.CopyFrom(helper.make_node("Identity", node.input, node.output))
    for output in model.graph.output:
        if output.name in labels:
            shape = [None, len(labels[output.name])]
            output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, shape))
    if labels and not opset_of(model):
        model.opset_import.append(helper.make_opsetid("", OPSET))
    return labels


def replace_locales(model: ModelProto) -> int:
    """Let texts become lower or upper case by the rules of a locale that all servers have. Returns the number of nodes."""
    count = 0
    for node in model.graph.node:
        if node.op_type == "StringNormalizer":
            locale = next((one for one in node.attribute if one.name == "locale"), None) or node.attribute.add()
            if locale.s.decode() in REPLACED:
                locale.CopyFrom(helper.make_attribute("locale", LOCALE))
                count += 1
    return count
