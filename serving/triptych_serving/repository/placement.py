"""Placement: the devices and the precision of a model, chosen before anything of it is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16, WITH_INT8_CACHES, TensorsManifest, TextGenerationManifest, runs_on
from triptych_serving.errors import BundleError, DeviceError
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.device_selection import AUTO, parse_devices, why_no_gpu
from triptych_serving.runtime.memory.budget import MemoryLimit, parse_limit
from triptych_serving.runtime.memory.cudart import find_gpus
from triptych_serving.runtime.memory.sizes import show_bytes
from triptych_serving.runtime.native.library import prefers_int8_caches
from triptych_serving.runtime.session import has_cuda

Value = TypeVar("Value")

GPU_SLOTS = 256  # a GPU steps this many rows in about the time of one


@dataclass(frozen=True)
class Hardware:
    """Devices that the models of a process may run on; by default the CPU alone."""

    gpus: tuple[Device, ...] = ()  # used by models with graphs for them, each model on all of them
    needed: bool = False  # reject a model without such graphs; otherwise the CPU runs it
    slots: int = GPU_SLOTS  # texts that one GPU decodes greedily at once
    memory_limit: MemoryLimit | None = None  # of each GPU; None: most of what is free when its first model is loaded
    remark: str = ""  # why no GPU is used although the installed runtime or the limit is for GPUs; empty otherwise

    @classmethod
    def parse(cls, devices: str, memory_limit: str = "", slots: int | None = None) -> Self:
        """Parse the flags of the command line.

        Args:
            devices: "auto", "cpu", "cuda", or GPUs by their numbers, "cuda:0,cuda:1".
            memory_limit: such as "20GiB" or "0.5"; may be empty.
            slots: None: the default.

        Raises:
            DeviceError: there is no such device, its software is not installed, or the limit is malformed.
        """
        gpus = tuple(device for device in _parse("--device", parse_devices, devices) if device != CPU)
        limit = _parse("--gpu-memory-limit", parse_limit, memory_limit) if memory_limit else None
        remark = why_no_gpu() if devices == AUTO and not gpus and (limit or has_cuda()) else ""
        if limit and not gpus and devices != AUTO:
            remark = f"--gpu-memory-limit has no effect with --device {devices}"
        return cls(gpus, bool(gpus) and devices != AUTO, slots or GPU_SLOTS, limit, remark)

    def describe(self) -> list[str]:
        """Return lines for the log; none for the CPU alone. Raises ServingError: the driver failed."""
        if self.remark:
            return [f"all models run on the CPU: {self.remark}"]
        if not self.gpus:
            return []
        return [f"{gpu.device} is {gpu.name}, {show_bytes(gpu.total_bytes)}" for gpu in find_gpus() if gpu.device in self.gpus]


CPU_ALONE = Hardware()


def _parse(flag: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except (DeviceError, ValueError) as error:
        raise DeviceError(f"{flag}: {error}") from error


@dataclass(frozen=True)
class Placement:
    """Devices and precision of one model."""

    precision: str
    devices: tuple[Device, ...] = (CPU,)  # or GPUs, never both
    remark: str = ""  # why the available GPUs are not used

    @property
    def on_gpu(self) -> bool:
        """True if GPUs run the model."""
        return self.devices != (CPU,)


def place(bundle: Bundle, wanted: str | None, hardware: Hardware) -> Placement:
    """Choose devices and precision.

    Args:
        wanted: a precision; None: on GPUs the one made for them, on the CPU the bundle's default, unless it is made for GPUs or
            another one computes the same faster on this processor.

    Raises:
        BundleError: the bundle has no such precision, or nothing for the required device.
    """
    if not hardware.gpus:
        return Placement(_for_cpu(bundle, wanted))
    if isinstance(bundle.manifest, TensorsManifest):  # the runtime runs any file on a GPU
        return Placement(_for_cpu(bundle, wanted), hardware.gpus)
    precision, fault = _for_gpu(bundle, wanted)
    if not fault:
        return Placement(precision, hardware.gpus)
    if hardware.needed:
        raise BundleError(bundle.folder, [fault])
    return Placement(_for_cpu(bundle, wanted), remark=fault)


def _for_cpu(bundle: Bundle, wanted: str | None) -> str:
    """Return the wanted or default precision; graphs for GPUs, which are slow there, only if there are no others.

    The default is replaced by the same weights with int8 caches, if the bundle has them and the processor is faster with them.
    """
    precisions = bundle.manifest.precisions
    if wanted is not None:
        return bundle.precision(wanted)
    default = bundle.manifest.default_precision
    if "cuda" in runs_on(default):
        default = next((name for name in precisions if "cuda" not in runs_on(name)), default)
    head_dim = bundle.manifest.decoder.head_dim if isinstance(bundle.manifest, TextGenerationManifest) else None
    cached = WITH_INT8_CACHES.get(default, "")
    if cached in precisions and prefers_int8_caches(head_dim):
        default = cached
    return bundle.precision(default)


def _for_gpu(bundle: Bundle, wanted: str | None) -> tuple[str, str]:
    """Return the precision that a GPU runs, or why there is none."""
    precisions = sorted(bundle.manifest.precisions)
    able = [name for name in precisions if "cuda" in runs_on(name)]
    if wanted is not None:
        name = bundle.precision(wanted)
        return name, "" if name in able else f"precision {name} runs on the CPU only"
    if not able:
        return "", f"it has no graphs for CUDA, only {', '.join(precisions)}; export it with --precision {FP16}"
    return FP16 if FP16 in able else able[0], ""
