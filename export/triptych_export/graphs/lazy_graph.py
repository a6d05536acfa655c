"""ONNX graph with lazily computed large weights, so that a model is never in memory twice.

ONNX keeps a graph in one protobuf message of at most 2 GB; here the message has only name, type and shape of large weights, and
`tensors` computes their values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model

from triptych_export.onnx_files.checks import tensor_bytes

LARGE = 1_024  # bytes; smaller tensors stay in the message

Array = NDArray[Any]
Maker = Callable[[], Array]


@dataclass
class Graph:
    """An ONNX model whose large initializers have type and dimensions, and are computed by `tensors` on demand."""

    model: ModelProto
    tensors: dict[str, Maker] = field(default_factory=dict)

    @classmethod
    def of_ir(cls, model: ir.Model) -> "Graph":
        """Wrap a traced program without copying its weights."""
        tensors: dict[str, Maker] = {}
        hollow: dict[str, TensorProto] = {}
        for name, value in model.graph.initializers.items():
            constant = value.const_value
            if constant is not None and constant.nbytes >= LARGE:
                tensors[name] = constant.numpy
                hollow[name] = hollow_tensor(name, constant.dtype.value, constant.shape.numpy())
                value.const_value = ir.tensor(np.zeros(0, np.float32), name=name)  # keeps the values out of the message
        message = ir.serde.serialize_model(model)
        for tensor in message.graph.initializer:
            if tensor.name in hollow:
                tensor.CopyFrom(hollow[tensor.name])
        return cls(message, tensors)

    @classmethod
    def of_file(cls, model: ModelProto, folder: Path) -> "Graph":
        """Wrap a model that was read without its external data, which are in `folder`; large weights are read on demand."""
        hollow = ModelProto()
        tensors: dict[str, Maker] = {}
        hollow.CopyFrom(model)
        for stored, tensor in zip(model.graph.initializer, hollow.graph.initializer, strict=True):
            if is_large(stored):
                tensors[stored.name] = partial(numpy_helper.to_array, stored, str(folder))
                tensor.CopyFrom(hollow_tensor(stored.name, stored.data_type, stored.dims))
        load_external_data_for_model(hollow, str(folder))  # small ones, and those of nested graphs
        return cls(hollow, tensors)

    def copy(self) -> "Graph":
        """Copy the graph; weights are shared."""
        model = ModelProto()
        model.CopyFrom(self.model)
        return Graph(model, dict(self.tensors))

    def values(self, tensor: TensorProto) -> Array:
        """Compute the values of an initializer."""
        maker = self.tensors.get(tensor.name)
        return numpy_helper.to_array(tensor) if maker is None else maker()

    def add(self, name: str, kind: np.dtype[Any], shape: tuple[int, ...], maker: Maker) -> TensorProto:
        """Make a lazily computed initializer; the caller adds it to the graph."""
        self.tensors[name] = maker
        return hollow_tensor(name, helper.np_dtype_to_tensor_dtype(kind), shape)

    def part_tables(self) -> None:
        """Give gathered tables their own names if other nodes read the same tensor.

        A runtime that repacks a matrix for products can then release it, and reads only the needed rows of the table, which is
        mapped from the same place in the file.
        """
        body = self.model.graph
        tensors = {tensor.name: tensor for tensor in body.initializer}
        others = {name for node in body.node if node.op_type != "Gather" for name in node.input}
        for node in body.node:
            name = node.input[0] if node.op_type == "Gather" else ""
            if name not in self.tensors or name not in others:
                continue
            table = f"{name}_table"
            if table not in tensors:
                tensors[table] = hollow_tensor(table, tensors[name].data_type, tensors[name].dims)
                body.initializer.append(tensors[table])
                self.tensors[table] = self.tensors[name]
            node.input[0] = table


def hollow_tensor(name: str, kind: int, shape: Sequence[int]) -> TensorProto:
    """Make an initializer without values."""
    return TensorProto(name=name, data_type=kind, dims=list(shape))


def is_large(tensor: TensorProto) -> bool:
    """Tell whether a tensor's values belong into a file beside the graph; strings always stay in the message."""
    return tensor.data_type != TensorProto.STRING and tensor_bytes(tensor) >= LARGE
