"""Which GPUs there are."""

import pytest

from triptych_serving.errors import DeviceError
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.cudart import Gpu, GpuMemory, find_gpus, gpu_memory

from .fake_cuda import TOTAL, FakeCuda, cudaError_t


def test_find_gpus_allocates_nothing() -> None:
    cuda = FakeCuda(gpus=2)
    assert find_gpus(cuda) == tuple(Gpu(Device("cuda", index), f"Fake GPU {index}", TOTAL) for index in range(2))
    assert not cuda.calls["cudaSetDevice"]  # which makes a context


def test_their_memory() -> None:
    assert gpu_memory(Device("cuda", 1), FakeCuda(gpus=2, free=5)) == GpuMemory(5, TOTAL)


@pytest.mark.parametrize(
    ("error", "before"),
    [
        (cudaError_t.cudaErrorNoDevice, ""),
        (
            cudaError_t.cudaErrorInsufficientDriver,
            "no NVIDIA driver is visible here, or it is older than CUDA 13 needs; ",
        ),
    ],
)
def test_missing_gpus_raise_with_cudas_message(error: cudaError_t, before: str) -> None:
    """Of a missing driver CUDA says that it is too old, which sends people to the wrong place."""
    cuda = FakeCuda()
    cuda.fails["cudaGetDeviceCount"] = error
    with pytest.raises(DeviceError) as refused:
        find_gpus(cuda)
    assert str(refused.value) == f"{before}cudaGetDeviceCount: words for {int(error)} ({error.name})"
