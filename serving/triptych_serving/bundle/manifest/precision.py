"""Which devices a precision's graphs are made for: a precision is known by its name."""

from typing import Literal

FP16 = "fp16"  # everything in 16 bits, but for sums that need more; the step feeds itself from the device's memory
CUDA_PRECISIONS = (FP16,)

DeviceKind = Literal["cpu", "cuda"]


def runs_on(precision: str) -> frozenset[DeviceKind]:
    """Kinds of devices that can run a precision's graphs; the CPU runs all of them, those for CUDA slowly."""
    return frozenset({"cpu", "cuda"}) if precision in CUDA_PRECISIONS else frozenset({"cpu"})
