"""Weights file shared by all graphs of a precision: equal tensors are stored once and memory-mapped.

ONNX external data, https://onnx.ai/onnx/repo-docs/ExternalData.html
"""

import hashlib
from pathlib import Path

import numpy as np
from onnx import StringStringEntryProto, TensorProto, numpy_helper

from triptych_export.graphs.lazy_graph import Graph, is_large
from triptych_export.onnx_files.checks import BITS

PAGE = 4_096  # bytes; where tensors of that size and more begin, as ONNX asks for, so that they can be memory-mapped
ALIGNMENT = 64  # bytes; of smaller tensors, which would leave most of a page empty


class WeightsFile:
    """Writer of the large tensors of several graphs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: dict[str, int] = {}
        self._end = 0
        path.write_bytes(b"")

    def externalize(self, graph: Graph) -> None:
        """Move the large initializers of `graph` into the file, one at a time; the graph then refers to the file by name."""
        for tensor in graph.model.graph.initializer:
            if is_large(tensor):
                values = np.ascontiguousarray(graph.values(tensor))
                packed = tensor.data_type in BITS  # numpy has one of these values in a byte
                data = memoryview(numpy_helper.from_array(values).raw_data) if packed else values.ravel().view(np.uint8).data
                self._refer(tensor, self._store(data), len(data))
            elif tensor.name in graph.tensors:
                tensor.CopyFrom(numpy_helper.from_array(graph.values(tensor), tensor.name))
        graph.tensors.clear()

    def _store(self, data: memoryview) -> int:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._offsets:
            alignment = PAGE if len(data) >= PAGE else ALIGNMENT
            offset = -(-self._end // alignment) * alignment
            with open(self.path, "r+b") as file:
                file.seek(offset)
                file.write(data)
            self._offsets[digest], self._end = offset, offset + len(data)
        return self._offsets[digest]

    def _refer(self, tensor: TensorProto, offset: int, length: int) -> None:
        name, dims, kind = tensor.name, list(tensor.dims), tensor.data_type
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.data_location = name, kind, TensorProto.EXTERNAL
        tensor.dims.extend(dims)
        for key, value in (("location", self.path.name), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.append(StringStringEntryProto(key=key, value=value))
