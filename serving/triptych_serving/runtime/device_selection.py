"""Device selection: the devices that a `--device` flag names, if hardware, runtime and CUDA bindings are available."""

from collections.abc import Callable, Sequence

from triptych_serving.errors import DeviceError, ServingError
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.cudart import INSTALL, Gpu, find_gpus
from triptych_serving.runtime.session import has_cuda

AUTO = "auto"
FORMS = "cpu, cuda, cuda:N, several of these GPUs as cuda:0,cuda:1, or auto"


def parse_devices(
    text: str, find: Callable[[], Sequence[Gpu]] = find_gpus, runtime_has_cuda: Callable[[], bool] = has_cuda
) -> tuple[Device, ...]:
    """Parse a `--device` flag.

    Args:
        text: `cpu`; `cuda` for `cuda:0`; `cuda:1`; `cuda:0,cuda:1`; `auto` for every usable GPU, else the CPU.
        runtime_has_cuda: returns True if the installed runtime can use them.

    Raises:
        ValueError: the text is malformed.
        DeviceError: a GPU cannot be used; names what is missing.
    """
    wanted = _read(text)
    if wanted == (CPU,):
        return wanted
    try:
        gpus = _usable(find, runtime_has_cuda)
    except ServingError:
        if not wanted:
            return (CPU,)
        raise
    if not wanted:
        return gpus
    for device in wanted:
        if device not in gpus:
            available = ", ".join(str(gpu.index) for gpu in gpus)
            raise DeviceError(f"there is no GPU {device.index}; available: {available}")
    return wanted


def why_no_gpu(find: Callable[[], Sequence[Gpu]] = find_gpus, runtime_has_cuda: Callable[[], bool] = has_cuda) -> str:
    """Return what is missing before `auto` selects a GPU; empty if nothing is."""
    try:
        _usable(find, runtime_has_cuda)
    except ServingError as error:
        return str(error)
    return ""


def _usable(find: Callable[[], Sequence[Gpu]], runtime_has_cuda: Callable[[], bool]) -> tuple[Device, ...]:
    if not runtime_has_cuda():
        raise DeviceError(f"the installed onnxruntime has no CUDA provider: {INSTALL}")
    gpus = tuple(gpu.device for gpu in find())
    if not gpus:
        raise DeviceError("there is no GPU")
    return gpus


def _read(text: str) -> tuple[Device, ...]:
    """Parse the text; empty for `auto`."""
    if text == AUTO:
        return ()
    devices = tuple(_read_one(part.strip(), text) for part in text.split(","))
    if len(set(devices)) < len(devices) or (CPU in devices and len(devices) > 1):
        raise ValueError(f"{text!r} is not a device: {FORMS}")
    return devices


def _read_one(part: str, text: str) -> Device:
    kind, colon, index = part.partition(":")
    if kind == "cpu" and not colon:
        return CPU
    if kind == "cuda" and (not colon or (index.isascii() and index.isdigit())):
        return Device("cuda", int(index or 0))
    raise ValueError(f"{text!r} is not a device: {FORMS}")
