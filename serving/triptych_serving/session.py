"""ONNX Runtime: the only module that knows it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The flash kernel of GroupQueryAttention is the slower one for single tokens on a CPU; read once, when a session is made.
os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from triptych_serving.errors import BundleError, EngineError
from triptych_serving.externaldata import GRAPH_SUFFIX
from triptych_serving.processor import int8_saturates

Array = NDArray[Any]
RUNTIME_ERRORS = tuple(
    getattr(ort.capi.onnxruntime_pybind11_state, name)
    for name in (
        "Fail",
        "InvalidArgument",
        "InvalidGraph",
        "InvalidProtobuf",
        "NoSuchFile",
        "NotImplemented",
        "RuntimeException",
    )
)
RUN_ERRORS = (*RUNTIME_ERRORS, RuntimeError)  # bound runs raise the plain one
RUNTIME_VERSION: str = ort.__version__


class Binding:
    """Inputs and outputs of a session, tied to memory once and run many times (2 us a run instead of 170)."""

    def __init__(self, session: ort.InferenceSession, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._memory = (dict(inputs), dict(outputs))  # bound by address: keep the arrays alive
        self._owner = binding
        # The Python wrapper of run_with_iobinding takes an exception path at every call; the C++ one does not.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding

    def run(self) -> None:
        """Run the graph over the bound memory.

        Raises:
            EngineError: the runtime failed.
        """
        try:
            self._run(self._binding, None)
        except RUN_ERRORS as error:
            raise EngineError.of(error) from error


class Session:
    """One graph, loaded. Safe to run from several threads at once.

    Args:
        path: the .onnx file; weights beside it are mapped.
        threads: threads inside one operator; 1 runs in the caller's thread alone.
        saturation_free: its integer weights are small enough for the fast kernels of every processor.

    Raises:
        BundleError: the file is not a graph that the runtime can load.
    """

    def __init__(self, path: Path, threads: int = 1, saturation_free: bool = False) -> None:
        if path.suffix != GRAPH_SUFFIX:  # the runtime would take it for another format, which is not checked
            raise BundleError(path, [f"names of graphs end in {GRAPH_SUFFIX}"])
        options = _options(threads, int8_saturates() and not saturation_free)
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except RUNTIME_ERRORS as error:
            raise BundleError(path, [f"the runtime cannot load it: {error}"]) from error

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names."""
        return tuple(node.name for node in self._session.get_inputs())

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names."""
        return tuple(node.name for node in self._session.get_outputs())

    def output_width(self, name: str) -> int:
        """The last dimension of an output, where the graph fixes it.

        Raises:
            KeyError: there is no such output.
        """
        shapes = {node.name: node.shape for node in self._session.get_outputs()}
        return int(shapes[name][-1])

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """Run once; outputs are new arrays, those that are named in their order, or all.

        Raises:
            EngineError: the runtime failed.
        """
        names = None if outputs is None else list(outputs)
        try:
            results: list[Array] = self._session.run(names, dict(inputs))
        except RUN_ERRORS as error:
            raise EngineError.of(error) from error
        return [np.asarray(result) for result in results]

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Binding:
        """Tie the graph to memory; an output may share its memory with an input where the graph updates in place."""
        return Binding(self._session, inputs, outputs)


def _options(threads: int, exact_products: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    entries = {
        # Threads that share operators must not sleep between them (15 % of a lone BERT-base request), nor spin after a run.
        "session.intra_op.allow_spinning": "1" if threads > 1 else "0",
        "session.force_spinning_stop": "1",
        "session.set_denormal_as_zero": "1",
        # Add + LayerNormalization took 14-17 us where the fused operator took 69-90.
        "optimization.disable_specified_optimizers": "SkipLayerNormFusion",
        "session.x64quantprecision": "1" if exact_products else "0",
    }
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return options
