"""Calls of a GPU's memory to CUDA, and conversion of CUDA's errors."""

import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from triptych_serving.errors import DeviceError, DeviceMemoryError, EngineError
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import DeviceArray, open_memory
from triptych_serving.runtime.memory.cuda import MOST_COPIES, RING_BYTES, CudaMemory
from triptych_serving.runtime.memory.cudart import Gpu, GpuMemory, find_gpus, gpu_memory, load_bindings
from triptych_serving.runtime.memory.row_copies import compile_kernel

from .fake_cuda import TOTAL, FakeCuda, cudaError_t

GPU = Device("cuda", 1)


@pytest.fixture(name="cuda")
def fake_cuda() -> FakeCuda:
    return FakeCuda(gpus=2)


@pytest.fixture(name="memory")
def cuda_memory(cuda: FakeCuda) -> CudaMemory:
    return CudaMemory(GPU, cuda)


def test_operations_are_asynchronous(memory: CudaMemory) -> None:
    array, host = memory.zeros((4,), np.int64), memory.staging((4,), np.int64)
    memory.upload(np.arange(4), array)
    memory.download(array, host)
    mark = memory.mark()
    assert not host.any()
    mark.wait()
    assert host.tolist() == [0, 1, 2, 3]

    def work() -> None:
        memory.upload(np.arange(4) + 4, array)
        memory.download(array, host)
        memory.mark().wait()

    with ThreadPoolExecutor(1) as pool:  # other threads use the same GPU
        pool.submit(work).result()
    assert host.tolist() == [4, 5, 6, 7]


def test_a_mark_does_not_wait_for_later_work(memory: CudaMemory) -> None:
    array = memory.zeros((1,), np.int64)
    first, second = (memory.staging((1,), np.int64) for _ in range(2))
    memory.upload(np.array([1]), array)
    memory.download(array, first)
    mark = memory.mark()
    memory.upload(np.array([2]), array)
    memory.download(array, second)
    mark.wait()
    assert (first.tolist(), second.tolist()) == ([1], [0])


def test_small_uploads_do_not_wait(memory: CudaMemory, cuda: FakeCuda) -> None:
    array = memory.zeros((RING_BYTES // 2,), np.uint8)
    memory.upload(np.ones(RING_BYTES // 2, np.uint8), array)
    assert not cuda.calls["cudaStreamSynchronize"]
    assert not cuda.calls["cudaEventSynchronize"]


def test_events_are_reused(memory: CudaMemory, cuda: FakeCuda) -> None:
    for _ in range(100):
        marks = [memory.mark(), memory.mark()]
        marks[1].wait()
    assert cuda.calls["cudaEventRecord"] == 200
    assert cuda.calls["cudaEventCreateWithFlags"] <= 4


def test_closing_frees_everything(memory: CudaMemory, cuda: FakeCuda) -> None:
    memory.zeros((100,), np.float32)
    memory.staging((100,), np.float32)
    mark = memory.mark()
    assert cuda.device
    assert cuda.locked
    cuda.cudaSetDevice(0)
    memory.close()
    memory.close()
    assert cuda._current.index == GPU.index, "a thread that frees may have used another GPU before"
    assert not cuda.device
    assert not cuda.locked
    assert cuda.free == TOTAL
    assert cuda.calls["cudaStreamDestroy"] == 1
    assert cuda.calls["cudaEventDestroy"] == cuda.calls["cudaEventCreateWithFlags"]
    mark.wait()


@pytest.mark.parametrize("error", [cudaError_t.cudaErrorLaunchFailure, cudaError_t.cudaErrorInvalidDevice])
def test_closing_a_failed_device_frees_what_it_can(memory: CudaMemory, cuda: FakeCuda, error: cudaError_t) -> None:
    """Any call may say what an earlier one did."""
    memory.zeros((100,), np.float32)
    cuda.fails = dict.fromkeys(("cudaSetDevice", "cudaStreamSynchronize", "cudaEventDestroy"), error)
    memory.close()
    assert not cuda.device
    assert not cuda.locked


@pytest.mark.parametrize("allocate", ["zeros", "staging"])
def test_out_of_memory_is_reported_with_all_numbers(cuda: FakeCuda, allocate: str) -> None:
    memory = CudaMemory(GPU, cuda)
    with pytest.raises(DeviceMemoryError) as refused:
        getattr(memory, allocate)((3, 1 << 28), np.float32)
    message = str(refused.value)
    assert "float32 [3, 268435456]" in message
    assert "3 GiB" in message
    assert "1023 MiB of 1 GiB are free" in message
    assert "cudaErrorMemoryAllocation" in message
    assert not cuda.forgotten
    assert memory.zeros((4,), np.int8).address != 0


def test_errors_have_cudas_message(memory: CudaMemory, cuda: FakeCuda) -> None:
    array, mark = memory.zeros((2,), np.int8), memory.mark()
    for name, call in (
        ("cudaMemcpyAsync", lambda: memory.upload(np.zeros(2, np.int8), array)),
        ("cudaEventSynchronize", mark.wait),
    ):
        cuda.fails[name] = cudaError_t.cudaErrorLaunchFailure
        with pytest.raises(EngineError, match=rf"{name}: words for 719 \(cudaErrorLaunchFailure\)"):
            call()
        assert not cuda.forgotten


def test_missing_gpus_and_bindings_are_named(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="cudaErrorInvalidDevice"):
        CudaMemory(Device("cuda", 2), cuda)
    load_bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match=r"pip install .*\[cuda\]"):
        open_memory(GPU)


def test_calls_wait_while_another_thread_captures(memory: CudaMemory, cuda: FakeCuda) -> None:
    array = memory.zeros((1,), np.int8)
    before = sum(cuda.calls.values())
    thread = threading.Thread(target=lambda: memory.fill(array, 1))
    with CUDA_GRAPH_LOCK.capturing():
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert sum(cuda.calls.values()) == before
        memory.fill(array, 2)  # who captures may
    thread.join()
    assert cuda.calls["cudaMemsetAsync"] == 3


def test_the_fake_matches_the_bindings() -> None:
    """Runs where the bindings are installed; needs no GPU."""
    pytest.importorskip("cuda.bindings.runtime")
    real = importlib.import_module("cuda.bindings.runtime")
    functions = {name[1:] for name in vars(FakeCuda) if name.startswith("_cuda")}
    constants = {"cudaStreamNonBlocking", "cudaEventDisableTiming", "cudaHostAllocDefault"}
    assert {name for name in functions | constants if not hasattr(real, name)} == set()
    assert {name: int(getattr(real, name)) for name in constants} == {name: getattr(FakeCuda, name) for name in constants}
    assert {error.name: int(getattr(real.cudaError_t, error.name)) for error in cudaError_t} == {
        error.name: int(error) for error in cudaError_t
    }
    real_box, box = real.cudaMemcpy3DParms(), FakeCuda.cudaMemcpy3DParms()
    for part in ("srcPtr", "dstPtr", "extent"):
        fields = getattr(real_box, part)  # a view: to set its fields is to set the box's
        for number, name in enumerate(vars(getattr(box, part)), 1):
            setattr(fields, name, number)
            assert int(getattr(getattr(real_box, part), name)) == number
    for kind in FakeCuda.cudaMemcpyKind:
        real_box.kind = getattr(real.cudaMemcpyKind, kind.name)
        assert int(real_box.kind) == kind.value
    assert {"name", "totalGlobalMem"} <= set(dir(real.cudaDeviceProp()))


def test_find_gpus_allocates_nothing() -> None:
    cuda = FakeCuda(gpus=2, free=5)
    assert find_gpus(cuda) == tuple(Gpu(Device("cuda", index), f"Fake GPU {index}", TOTAL) for index in range(2))
    assert not cuda.calls["cudaSetDevice"]  # which makes a context
    assert gpu_memory(Device("cuda", 1), cuda) == GpuMemory(5, TOTAL)


@pytest.mark.parametrize(
    ("error", "before"),
    [
        (cudaError_t.cudaErrorNoDevice, ""),
        (cudaError_t.cudaErrorInsufficientDriver, "no NVIDIA driver is visible here, or it is older than CUDA 13 needs; "),
    ],
)
def test_missing_gpus_raise_with_cudas_message(error: cudaError_t, before: str) -> None:
    """CUDA reports a missing driver as too old, which is misleading."""
    cuda = FakeCuda()
    cuda.fails["cudaGetDeviceCount"] = error
    with pytest.raises(DeviceError) as refused:
        find_gpus(cuda)
    assert str(refused.value) == f"{before}cudaGetDeviceCount: words for {int(error)} ({error.name})"


def test_rows_are_copied_with_one_kernel(cuda: FakeCuda) -> None:
    launched: list[tuple[Any, Any, int]] = []

    class Kernel:
        def launch(self, array: DeviceArray, copies: DeviceArray, stream: int) -> None:
            host = memory.staging(copies.shape, copies.dtype)
            memory.download(copies, host)
            memory.wait()
            launched.append((array, host.tolist(), stream))

    kernel: Any = Kernel()
    memory = CudaMemory(GPU, cuda, lambda index: kernel)
    cache, narrow = memory.zeros((1, 3, 1, 2, 8), np.float16), memory.zeros((1, 3, 1, 2, 4), np.float16)
    copies = [(0, 1, 0, 2)] * (MOST_COPIES + 1)
    memory.copy_rows(cache, copies)
    assert [(array, rows) for array, rows, _ in launched] == [(cache, [[0, 1, 0, 2]] * MOST_COPIES), (cache, [[0, 1, 0, 2]])]
    assert {stream for *_, stream in launched} == {memory.stream}
    memory.copy_rows(narrow, [(0, 1, 0, 2)])  # a position has fewer bytes than a thread copies
    assert len(launched) == 2
    for wrong in ((0, 3, 0, 1), (-1, 1, 0, 1), (0, 1, 0, 3)):
        with pytest.raises(ValueError, match="exceed a cache of shape"):
            memory.copy_rows(cache, [wrong])
    memory.close()


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
def test_the_kernel_compiles(capability: tuple[int, int]) -> None:
    """Runs where the bindings are installed; needs no GPU."""
    pytest.importorskip("cuda.bindings.nvrtc")
    assert compile_kernel(*capability).startswith(b"\x7fELF")
