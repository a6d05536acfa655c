"""Sessions of ONNX Runtime; the only module that imports it."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from traceback import clear_frames
from typing import Any

# The flash kernel of GroupQueryAttention is the slower one for single tokens on a CPU; read once, when a session is made.
os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")
# On a GPU the runtime's own kernel for decoding is slow over short caches: 66 us at 256 rows of 8 heads, cuDNN's 20 us.
os.environ.setdefault("ORT_ENABLE_XQA", "0")

# Official builds would send events about models and sessions to Microsoft, and keep an identifier of the machine for that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]
from numpy.typing import NDArray

from triptych_serving.errors import BundleError, DeviceError, DeviceMemoryError, EngineError, ServingError
from triptych_serving.runtime.cpu_info import int8_saturates, usable_memory
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.external_data import GRAPH_SUFFIX
from triptych_serving.runtime.memory import INSTALL, DeviceArray, Memory
from triptych_serving.runtime.native.library import takes_sequences
from triptych_serving.runtime.process import trim_heap
from triptych_serving.runtime.session_options import ARENA, cpu_entries, cuda_options, gpu_entries

logger = logging.getLogger(__name__)

Array = NDArray[Any]
Bindable = Array | DeviceArray
UNCAPTURED = -1  # as a graph's number: run it operator by operator
InvalidArgument = ort.capi.onnxruntime_pybind11_state.InvalidArgument  # such as an index out of range
# Errors of operators whose inputs do not fit, such as sizes that cannot be added. On a GPU its faults are such errors, too.
OPERATOR_ERRORS = (InvalidArgument, ort.capi.onnxruntime_pybind11_state.Fail)
RUNTIME_ERRORS = tuple(
    getattr(ort.capi.onnxruntime_pybind11_state, name)
    for name in (
        "EPFail",
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
CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
# An entry of a session's configuration, which the library of kernels reads: for decoder-only models, with attention or without.
KERNEL_SET, GENERATION, PRODUCTS, ATTENTION = "triptych.kernels", "generation", "products", "attention"
LIBRARY_BYTES = 64 << 20  # of a GPU, for a session's libraries: their handles and workspaces
ERRORS, FATAL = 3, 4  # severity of what is written to the runtime's log
NO_LIBRARIES = (
    "the runtime's CUDA provider cannot be used: the libraries that it needs (CUDA, cuDNN) are missing or of another version "
    "than it was built with; see stderr for details"
)
CANNOT_LOAD = "the runtime cannot load it"
NO_ROOM = ("out of memory", "Failed to allocate memory", "Available memory of", "bad_alloc")  # parts of the runtime's messages
# A model whose one operator is Identity, from x to y, float32 [1].
IDENTITY = (
    b'\x08\x08:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)
DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32,
    "tensor(uint16)": np.uint16,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


def has_cuda() -> bool:
    """Return True if the installed runtime was built for GPUs."""
    return CUDA_PROVIDER in ort.get_available_providers()


def seed_sessions(seed: int) -> None:
    """Set the seed from which sessions that are made later draw random numbers; without it, each process draws others."""
    ort.set_seed(seed)


@dataclass(frozen=True)
class SessionPlace:
    """Device, stream and memory limit of a session."""

    memory: Memory  # its stream is used, and its arrays are bound; on the CPU only its device matters
    limit_bytes: int | None = None  # maximum allocation for weights and intermediate results; None: no limit
    captures: bool = False  # runs may be captured as CUDA graphs; then every operator needs a GPU kernel


class RunOptions(dict[int | None, ort.RunOptions]):
    """Run options of a GPU session by `graph` as for Binding.run, created once for each."""

    def __missing__(self, graph: int | None) -> ort.RunOptions:
        self[graph] = _for_gpu(ort.RunOptions(), graph)
        return self[graph]


class RunStop:
    """Ends a run of a session from another thread: between two operators, also those inside of a loop."""

    def __init__(self) -> None:
        self.options = ort.RunOptions()
        self.options.log_severity_level = FATAL  # failures are exceptions, and being stopped is none to report

    def set(self) -> None:
        """End the run, with an EngineError, or any that begins later."""
        self.options.terminate = True


class Binding:
    """Inputs and outputs of a session, bound to memory once and run many times (2 us per run instead of 170).

    On a GPU, an array of the host is copied to the device when it is bound, not when it is run, unless the graph itself reads
    it on the host: inputs that change between runs must be DeviceArrays.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        options: RunOptions | None,
        inputs: Mapping[str, Bindable],
        outputs: Mapping[str, Bindable],
    ) -> None:
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, *_place_of(array))
        for name, array in outputs.items():
            binding.bind_output(name, *_place_of(array))
        if options is not None and any(isinstance(array, np.ndarray) for array in inputs.values()):
            binding.synchronize_inputs()  # the runtime copies them on a stream of its own
        self._memory = (dict(inputs), dict(outputs))  # bound by address: keep the arrays alive
        self._owner = binding
        self._options = options
        # The Python wrapper of run_with_iobinding takes an exception path at every call; the C++ one does not.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding

    def run(self, graph: int | None = None) -> None:
        """Run the graph over the bound memory. On the CPU the run is done when this returns, whatever `graph` is.

        Args:
            graph: None: return when the run is done. A number: only enqueue the run on the place's stream; a positive
                number names a CUDA graph, which this binding's first run with it captures, and which no other binding of
                the session may use; UNCAPTURED runs without one.

        Raises:
            EngineError: the runtime failed.
        """
        try:
            if self._options is None:
                self._run(self._binding, None)
            else:
                with CUDA_GRAPH_LOCK.running():
                    self._run(self._binding, self._options[graph])
        except RUN_ERRORS as error:
            raise EngineError.of(error) from error

    def __del__(self) -> None:
        if self.__dict__.get("_options") is not None:
            CUDA_GRAPH_LOCK.part_with([self.__dict__.pop(name, None) for name in ("_run", "_binding", "_owner")])


class Session:
    """One graph, loaded. Safe to run from several threads at once.

    Args:
        path: the .onnx file; weights beside it are mapped.
        threads: threads inside one operator; 1 runs in the caller's thread alone.
        saturation_free: integer weights are small enough for the fast kernels of every processor.
        place: device and stream; None: the CPU, over host arrays. On a GPU only one thread at a time may run it.
        kernels: a library of kernels that replace the runtime's own on the CPU; None: none.
        kernel_set: which of them: "" for step graphs of translation; for decoder-only models GENERATION, or a part of these,
            PRODUCTS or ATTENTION.
        in_arena: on the CPU, runs allocate from `open_arena`: what they need depends on what requests say.
        restores_weights: on the CPU, DequantizeLinear of weights is computed while the graph is loaded, as int8-weights needs.

    Raises:
        BundleError: the runtime cannot load the file as a graph.
        DeviceError: the runtime cannot use the GPU.
        DeviceMemoryError: the GPU has no room for it.
    """

    def __init__(
        self,
        path: Path,
        threads: int = 1,
        saturation_free: bool = False,
        place: SessionPlace | None = None,
        kernels: Path | None = None,
        kernel_set: str = "",
        in_arena: bool = False,
        restores_weights: bool = False,
    ) -> None:
        if path.suffix != GRAPH_SUFFIX:  # the runtime would take it for another format, which is not checked
            raise BundleError(path, [f"names of graphs end in {GRAPH_SUFFIX}"])
        self._run_options: RunOptions | None = None
        self.takes_sequences = False  # attention of encoders reads several sequences in one row, if it has their lengths
        if place is None or place.memory.device.kind == "cpu":
            exact = int8_saturates() and not saturation_free
            entries = {**cpu_entries(threads, exact, restores_weights), KERNEL_SET: kernel_set}
            if in_arena:
                open_arena()
                entries |= ARENA
            self._session, native = _open_on_cpu(path, threads, entries, kernels)
            trim_heap()  # of weights that were converted, the C library keeps free memory: 2.5 of 3.7 GB with XLM-R large
            self.takes_sequences = native and takes_sequences() and not exact
        else:
            self._session = _open_on_gpu(path, place)
            self._run_options = RunOptions()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(node.name for node in self._session.get_inputs())

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(node.name for node in self._session.get_outputs())

    @property
    def optional_inputs(self) -> frozenset[str]:
        """Names of the inputs that have a default, which are not among `inputs`."""
        return frozenset(node.name for node in self._session.get_overridable_initializers())

    def shape(self, name: str) -> tuple[int | str | None, ...]:
        """Return the shape of an input or output: fixed lengths as numbers, others as names or None.

        Raises:
            KeyError: there is no such input or output.
        """
        return tuple(self._node(name).shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the type of an input or output.

        Raises:
            KeyError: there is no such input or output, or its type does not exist in numpy.
        """
        return np.dtype(DTYPES[self._node(name).type])

    def _node(self, name: str) -> ort.NodeArg:
        nodes = {node.name: node for node in (*self._session.get_inputs(), *self._session.get_outputs())}
        return nodes[name]

    def output_width(self, name: str) -> int:
        """Return the last dimension of an output, which the graph must fix. Raises KeyError: there is no such output."""
        return int(self._node(name).shape[-1])

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: RunStop | None = None
    ) -> list[Array]:
        """Run once and return new arrays: the named outputs in this order, or all.

        Raises:
            EngineError: the runtime failed, or was stopped.
        """
        names = None if outputs is None else list(outputs)
        options = None if stop is None else stop.options
        if self._run_options is not None:
            options = self._run_options[None] if options is None else _for_gpu(options, None)
        try:
            with self._guard():
                results: list[Array] = self._session.run(names, dict(inputs), options)
        except RUN_ERRORS as error:
            raise EngineError.of(error) from error
        return [np.asarray(result) for result in results]

    def bind(self, inputs: Mapping[str, Bindable], outputs: Mapping[str, Bindable]) -> Binding:
        """Bind the graph to memory of the host and of the place's device.

        An output may share memory with an input that the graph updates in place.
        """
        with self._guard():
            return Binding(self._session, self._run_options, inputs, outputs)

    def __del__(self) -> None:
        if self.__dict__.get("_run_options") is not None:  # freeing GPU memory would disturb a capture
            CUDA_GRAPH_LOCK.part_with([self.__dict__.pop("_session", None)])

    def _guard(self) -> AbstractContextManager[None]:
        """Return the context that keeps GPU calls apart from captures in other threads."""
        return nullcontext() if self._run_options is None else CUDA_GRAPH_LOCK.running()


def _for_gpu(options: ort.RunOptions, graph: int | None) -> ort.RunOptions:
    # Without a number, a capturing session would capture the run under a number of its own.
    options.add_run_config_entry("gpu_graph_id", str(UNCAPTURED if graph is None else graph))
    options.add_run_config_entry("disable_synchronize_execution_providers", "0" if graph is None else "1")
    return options


def _place_of(array: Bindable) -> tuple[str, int, type, Sequence[int], int]:
    if isinstance(array, DeviceArray):
        return array.device.kind, array.device.index, array.dtype.type, array.shape, array.address
    return "cpu", 0, array.dtype.type, array.shape, array.ctypes.data


def _open_on_cpu(
    path: Path, threads: int, entries: Mapping[str, str], kernels: Path | None
) -> tuple[ort.InferenceSession, bool]:
    """Return a session, and whether it has the kernels."""
    options = _session_options(threads, entries)
    try:
        if kernels is not None:
            options.register_custom_ops_library(str(kernels))
        return ort.InferenceSession(str(path), options, providers=[CPU_PROVIDER]), kernels is not None
    except RUNTIME_ERRORS as error:
        if kernels is not None:
            opened = _open_on_cpu(path, threads, entries, None)
            logger.warning("%s: the runtime rejects the kernels of %s, its own are used: %s", path.name, kernels.name, error)
            return opened
        raise BundleError(path, [f"{CANNOT_LOAD}: {error}"]) from error


def _open_on_gpu(path: Path, place: SessionPlace) -> ort.InferenceSession:
    device = place.memory.device
    if not has_cuda():
        raise DeviceError(f"the installed onnxruntime has no CUDA provider: {INSTALL}")
    options = _session_options(1, gpu_entries(place.captures))
    options.enable_mem_pattern = False  # it would keep a memory plan for each shape ever run
    provider = cuda_options(device.index, place.memory.stream, place.limit_bytes, place.captures)
    with CUDA_GRAPH_LOCK.running():
        try:
            _prepare_for_gpus()
            session = ort.InferenceSession(str(path), options, providers=[(CUDA_PROVIDER, provider)], enable_fallback=0)
        except (*RUN_ERRORS, ValueError) as error:
            clear_frames(error.__traceback__)  # destroys what exists of the session under the lock, before its stream
            raise _refusal(path, place, error) from error
    if CUDA_PROVIDER not in session.get_providers():  # the runtime fell back to the CPU, and logged a line
        raise DeviceError(NO_LIBRARIES)
    return session


def _refusal(path: Path, place: SessionPlace, error: Exception) -> ServingError:
    """Explain why a graph was not loaded on a GPU; called under the CUDA graph lock."""
    device = place.memory.device
    if lacks_memory(error):
        return DeviceMemoryError(f"{path.name}: {device} has no room for it: {error}")
    if not isinstance(error, RUNTIME_ERRORS):
        return DeviceError(f"the runtime cannot use {device}: {error}")
    if place.captures:  # then an unusable provider looks like missing operators
        with suppress(BundleError):
            _open_on_gpu(path, replace(place, captures=False))
    return BundleError(path, [f"{CANNOT_LOAD} on {device}: {error}"])


def lacks_memory(error: BaseException | None) -> bool:
    """Tell if an error of the runtime is about memory."""
    return any(words in str(error) for words in NO_ROOM)


@cache
def open_arena() -> int:
    """Create the process's allocator for runs without a known need for memory, and return its limit in bytes."""
    limit = usable_memory() // 2
    host = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(host, ort.OrtArenaCfg({"max_mem": limit}))
    return limit


def shrink_arena() -> None:
    """Return what no run uses of the memory of `open_arena` to the system."""
    if open_arena.cache_info().currsize:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        _identity().run(None, {"x": np.zeros(1, np.float32)}, options)


@cache
def _identity() -> ort.InferenceSession:
    """Return a session that does nothing: only runs can shrink an allocator."""
    return ort.InferenceSession(IDENTITY, _session_options(1, ARENA), providers=[CPU_PROVIDER])


@cache
def _prepare_for_gpus() -> None:
    """Load the CUDA libraries that pip installed, which the system's loader does not find; missing ones are printed."""
    ort.set_default_logger_severity(ERRORS)  # it warns of unused plug-ins at every session
    with redirect_stdout(sys.stderr):
        ort.preload_dlls()


def _session_options(threads: int, entries: Mapping[str, str]) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return options
