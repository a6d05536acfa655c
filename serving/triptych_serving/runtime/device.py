"""Compute devices: the CPU and GPUs."""

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, order=True)
class Device:
    """A device; `str()` is its name on the command line: `cpu`, `cuda:1`. Raises ValueError: the index is impossible."""

    kind: DeviceKind
    index: int = 0  # among the machine's GPUs that are visible to this process

    def __post_init__(self) -> None:
        if self.index < 0 or (self.kind == "cpu" and self.index):
            raise ValueError(f"index is {self.index}, it must be {'0 on the CPU' if self.kind == 'cpu' else 'at least 0'}")

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"


CPU = Device("cpu")
