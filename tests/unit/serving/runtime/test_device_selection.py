"""Which devices a text stands for, and what is missing where one cannot be had."""

from collections.abc import Callable, Sequence

import pytest

from triptych_serving.errors import DeviceError
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.device_selection import parse_devices, why_no_gpu
from triptych_serving.runtime.memory.cudart import Gpu


def gpus(count: int) -> Callable[[], Sequence[Gpu]]:
    return lambda: tuple(Gpu(Device("cuda", index), "GPU", 1) for index in range(count))


def no_driver() -> Sequence[Gpu]:
    raise DeviceError("cudaGetDeviceCount: no driver")


TWO = gpus(2)


def parse(text: str, find: Callable[[], Sequence[Gpu]] = TWO, has_cuda: bool = True) -> list[str]:
    return [str(device) for device in parse_devices(text, find, lambda: has_cuda)]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("cpu", ["cpu"]),
        ("cuda", ["cuda:0"]),
        ("cuda:1", ["cuda:1"]),
        ("cuda:1,cuda:0", ["cuda:1", "cuda:0"]),
        ("cuda, cuda:1", ["cuda:0", "cuda:1"]),
        ("auto", ["cuda:0", "cuda:1"]),
    ],
)
def test_device_flags_are_parsed(text: str, devices: list[str]) -> None:
    assert parse(text) == devices
    usable = parse("auto", has_cuda=False), parse("auto", find=no_driver), parse("auto", find=gpus(0))
    assert usable == (["cpu"],) * 3, "auto selects the CPU without a usable GPU"


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda,cuda:0", "cpu,cuda", "auto,cpu", "CPU"]
)
def test_malformed_device_flags_name_the_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is not a device: cpu, cuda, cuda:N"):
        parse(text)


def test_missing_requirements_are_named() -> None:
    with pytest.raises(DeviceError, match="there is no GPU 3; available: 0, 1"):
        parse("cuda:1,cuda:3")
    with pytest.raises(DeviceError, match="no CUDA provider: pip uninstall onnxruntime; pip install "):
        parse("cuda", has_cuda=False)
    assert why_no_gpu(gpus(1), lambda: True) == ""
    assert "no driver" in why_no_gpu(no_driver, lambda: True)
    assert "no CUDA provider" in why_no_gpu(gpus(1), lambda: False)
    assert why_no_gpu(gpus(0), lambda: True) == "there is no GPU"


@pytest.mark.parametrize(("kind", "index"), [("cpu", 1), ("cuda", -1)])
def test_impossible_devices_are_rejected(kind: str, index: int) -> None:
    with pytest.raises(ValueError, match=f"index is {index}"):
        Device(kind, index)  # type: ignore[arg-type]
