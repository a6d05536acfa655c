"""Sessions on the CPU and on a GPU; GPU sessions are fakes with real options."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from triptych_serving.errors import BundleError, DeviceError, DeviceMemoryError, EngineError, ServingError
from triptych_serving.runtime import session as module
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import HostMemory, host_view
from triptych_serving.runtime.memory.cuda import CudaMemory
from triptych_serving.runtime.session import UNCAPTURED, Session, SessionPlace

from ....fixtures.onnx_models import onnx_model, values
from .memory.fake_cuda import FakeCuda

GPU = Device("cuda", 1)
GRAPH = Path("graph.onnx")
FAIL, INVALID_GRAPH, LAST = module.RUNTIME_ERRORS[0], module.RUNTIME_ERRORS[1], module.RUNTIME_ERRORS[-1]


class FakeBinding:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.inputs: dict[str, tuple[Any, ...]] = {}
        self.outputs: dict[str, tuple[Any, ...]] = {}
        self._iobinding = self

    def bind_input(self, name: str, *memory: Any) -> None:
        self.inputs[name] = memory

    def bind_output(self, name: str, *memory: Any) -> None:
        self.outputs[name] = memory

    def synchronize_inputs(self) -> None:
        assert self.inputs


class FakeSession:
    """Made in the place of the runtime's."""

    made: list["FakeSession"]
    error: Exception | None
    providers: list[str]

    def __init__(self, path: str, options: ort.SessionOptions, providers: list[Any], **more: Any) -> None:
        if self.error:
            raise self.error
        self.path, self.options, self.given, self.more = path, options, providers, more
        self._sess = self
        self.runs: list[Any] = []
        self.fails: Exception | None = None
        self.binding = FakeBinding()
        self.made.append(self)

    def get_providers(self) -> list[str]:
        return self.providers

    def io_binding(self) -> FakeBinding:
        return self.binding

    def run_with_iobinding(self, binding: FakeBinding, options: Any) -> None:
        if self.fails:
            raise self.fails
        self.runs.append(options)

    def run(self, names: list[str] | None, inputs: dict[str, Any], options: Any = None) -> list[Any]:
        self.runs.append(options)
        return [inputs["x"]]


@pytest.fixture(name="made")
def fake_sessions(monkeypatch: pytest.MonkeyPatch) -> list[FakeSession]:
    """Sessions that were made, of a runtime that has the CUDA provider."""
    FakeSession.made, FakeSession.error = [], None
    FakeSession.providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(module.ort, "InferenceSession", FakeSession)
    monkeypatch.setattr(module, "_prepare_for_gpus", lambda: None)
    monkeypatch.setattr(module, "has_cuda", lambda: True)
    return FakeSession.made


@pytest.fixture(name="memory")
def cuda_memory() -> CudaMemory:
    return CudaMemory(GPU, FakeCuda(gpus=2))


def entry(options: ort.SessionOptions, key: str) -> str:
    return str(options.get_session_config_entry(key))


def run_entries(options: ort.RunOptions) -> tuple[str, str]:
    """Number of the graph, and whether the host does not wait."""
    keys = ("gpu_graph_id", "disable_synchronize_execution_providers")
    number, enqueues = (str(options.get_run_config_entry(key)) for key in keys)
    return number, enqueues


def test_options_of_the_cuda_provider(made: list[FakeSession], memory: CudaMemory) -> None:
    Session(GRAPH, place=SessionPlace(memory, limit_bytes=5 << 30))
    [session] = made
    [(name, options)] = session.given
    assert (session.path, name) == ("graph.onnx", "CUDAExecutionProvider")
    assert options == {
        "device_id": "1",
        "user_compute_stream": str(memory.stream),
        "gpu_mem_limit": str(5 << 30),
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "use_tf32": "1",
        "enable_skip_layer_norm_strict_mode": "1",
        "enable_cuda_graph": "0",
    }
    assert session.more == {"enable_fallback": 0}


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (INVALID_GRAPH("no kernel"), BundleError, "graph.onnx: the runtime cannot load it on cuda:1: no kernel"),
        (FAIL("CUDA failure 2: out of memory"), DeviceMemoryError, "cuda:1 has no room for it"),
        (LAST("Failed to allocate memory for requested buffer of size 9"), DeviceMemoryError, "of size 9"),
        (RuntimeError("CUDA failure 100"), DeviceError, "the runtime cannot use cuda:1: CUDA failure 100"),
        (ValueError("unknown provider option"), DeviceError, "unknown provider option"),
    ],
)
def test_load_errors_are_classified(
    made: list[FakeSession], memory: CudaMemory, error: Exception, kind: type[ServingError], message: str
) -> None:
    FakeSession.error = error
    with pytest.raises(kind, match=message) as raised:
        Session(GRAPH, place=SessionPlace(memory))
    assert type(raised.value) is kind


class PickySession(FakeSession):
    """Refuses to leave operators to the CPU, as all must be without the provider, or as one must."""

    ends: list[bool]

    def __init__(self, path: str, options: ort.SessionOptions, providers: list[Any], **more: Any) -> None:
        if entry(options, "session.disable_cpu_ep_fallback") == "1":
            raise INVALID_GRAPH("fallback to CPU EP has been explicitly disabled")

    def __del__(self) -> None:
        self.ends.append(CUDA_GRAPH_LOCK._running > 0)


@pytest.mark.parametrize(
    ("providers", "kind", "message"),
    [
        (["CPUExecutionProvider"], DeviceError, "libraries that it needs"),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], BundleError, "cannot load it on cuda:1: fallback to CPU"),
    ],
)
def test_a_missing_library_is_not_reported_as_a_missing_kernel(
    made: list[FakeSession],
    memory: CudaMemory,
    monkeypatch: pytest.MonkeyPatch,
    providers: list[str],
    kind: type[ServingError],
    message: str,
) -> None:
    """A failed session and the one that shows why are destroyed under the lock, though the error of the graph is kept."""
    FakeSession.providers = providers
    if kind is DeviceError:
        with pytest.raises(DeviceError, match=message):
            Session(GRAPH, place=SessionPlace(memory))
    ends = PickySession.ends = []
    monkeypatch.setattr(module.ort, "InferenceSession", PickySession)
    with pytest.raises(kind, match=message):
        Session(GRAPH, place=SessionPlace(memory, captures=True))
    if kind is BundleError:
        assert ends == [True, True]


def test_a_runtime_without_the_provider_is_rejected(memory: CudaMemory) -> None:
    if module.has_cuda():
        pytest.skip("the runtime that is installed has it")
    with pytest.raises(DeviceError, match="no CUDA provider: pip"):
        Session(GRAPH, place=SessionPlace(memory))


def test_arrays_are_bound_by_address(made: list[FakeSession], memory: CudaMemory) -> None:
    session = Session(GRAPH, place=SessionPlace(memory))
    cache, k = memory.zeros((4, 3), np.float16), np.array([5])
    session.bind({"cache": cache.first(2), "k": k}, {"present": cache.first(2), "best": cache.part(2, 4)})
    bound = made[0].binding
    assert bound.inputs == {
        "cache": ("cuda", 1, np.float16, (2, 3), cache.address),
        "k": ("cpu", 0, np.int64, (1,), k.ctypes.data),
    }
    assert bound.outputs == {
        "present": ("cuda", 1, np.float16, (2, 3), cache.address),
        "best": ("cuda", 1, np.float16, (2, 3), cache.address + 12),
    }


def test_runs_carry_their_graph_number(made: list[FakeSession], memory: CudaMemory) -> None:
    session = Session(GRAPH, place=SessionPlace(memory, captures=True))
    one, other = session.bind({}, {}), session.bind({}, {})
    for binding, graph in ((one, None), (one, 7), (other, 8), (one, 7), (one, UNCAPTURED)):
        binding.run(graph)
    runs = made[0].runs
    assert [run_entries(options) for options in runs] == [("-1", "0"), ("7", "1"), ("8", "1"), ("7", "1"), ("-1", "1")]
    assert runs[1] is runs[3]
    made[0].fails = FAIL("CUDA failure 700")
    with pytest.raises(EngineError, match="CUDA failure 700"):
        one.run(UNCAPTURED)


@pytest.mark.parametrize("act", ["load", "bind", "run", "run bound"])
def test_a_gpu_session_waits_while_another_thread_captures(made: list[FakeSession], memory: CudaMemory, act: str) -> None:
    session = Session(GRAPH, place=SessionPlace(memory))
    binding = session.bind({}, {})
    acts: dict[str, Callable[[], object]] = {
        "load": lambda: Session(GRAPH, place=SessionPlace(memory)),
        "bind": lambda: session.bind({}, {}),
        "run": lambda: session.run({"x": np.arange(3)}),
        "run bound": binding.run,
    }
    thread = threading.Thread(target=acts[act])
    with CUDA_GRAPH_LOCK.capturing():
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        binding.run(1)  # who captures runs
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("captured", [False, True])
def test_a_gpu_session_is_not_destroyed_during_a_capture(made: list[FakeSession], memory: CudaMemory, captured: bool) -> None:
    session = Session(GRAPH, place=SessionPlace(memory))
    binding = session.bind({}, {})
    ended = weakref.ref(made.pop())

    def drop() -> None:
        nonlocal session, binding
        del session, binding

    thread = threading.Thread(target=drop)
    with CUDA_GRAPH_LOCK.capturing() if captured else nullcontext():
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        gc.collect()
        assert (ended() is not None) == captured
    gc.collect()
    assert ended() is None


@pytest.fixture(scope="module", name="doubling")
def doubling_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`x` float16 `[rows, 3]`, `step` int32 `[1]` -> `y` = x + x, `next` = step + 1."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Add", ["step", "one"], ["next"])]
    inputs, outputs = (
        [*values({x: ["rows", 3]}, TensorProto.FLOAT16), *values({step: [1]}, TensorProto.INT32)]
        for x, step in (("x", "step"), ("y", "next"))
    )
    path = tmp_path_factory.mktemp("graphs") / "doubling.onnx"
    onnx.save(onnx_model(nodes, inputs, outputs, {"one": np.ones(1, np.int32)}, opset=17), path)
    return path


def test_shapes_and_types_of_inputs_and_outputs(doubling: Path) -> None:
    session = Session(doubling)
    assert {name: session.shape(name) for name in ("x", "step", "y", "next")} == {
        "x": ("rows", 3),
        "step": (1,),
        "y": ("rows", 3),
        "next": (1,),
    }
    assert [session.dtype(name) for name in ("x", "step", "y", "next")] == [np.float16, np.int32, np.float16, np.int32]
    for ask in (session.shape, session.dtype):
        with pytest.raises(KeyError):
            ask("z")


@pytest.mark.parametrize("place", [None, SessionPlace(HostMemory()), SessionPlace(HostMemory(), limit_bytes=1, captures=True)])
@pytest.mark.parametrize("graph", [None, UNCAPTURED, 3])
def test_the_cpu_accepts_numpy_and_device_arrays(doubling: Path, place: SessionPlace | None, graph: int | None) -> None:
    """Whatever a place says that is for GPUs; in place too."""
    session = Session(doubling, place=place)
    memory = HostMemory()
    x, step, y = memory.zeros((5, 3), np.float16), memory.zeros((1,), np.int32), np.zeros((2, 3), np.float16)
    host_view(x)[...] = np.arange(15).reshape(5, 3)
    binding = session.bind({"x": x.part(1, 3), "step": step}, {"y": y, "next": step})
    for expected in (1, 2, 3):
        binding.run(graph)
        assert host_view(step).tolist() == [expected]
        np.testing.assert_array_equal(y, 2 * host_view(x)[1:3])
        host_view(x)[...] += 1


def test_the_runtime_sends_nothing_about_its_use(tmp_path: Path) -> None:
    """ONNX Runtime keeps the machine's identifier, and events to send, in the user's folder."""
    program = "import time, triptych_serving.runtime.session; time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", program], env={"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}, check=True)
    assert not list(tmp_path.iterdir())


def test_messages_of_the_loader_go_to_stderr(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module.ort, "preload_dlls", lambda: sys.stdout.write("no libcudnn.so.9"))
    monkeypatch.setattr(module.ort, "set_default_logger_severity", lambda severity: None)
    module._prepare_for_gpus.__wrapped__()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "no libcudnn.so.9")
