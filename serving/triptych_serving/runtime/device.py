"""Where a model computes."""

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, order=True)
class Device:
    """`str()` is the name that the command line takes: `cpu`, `cuda:1`.

    Raises:
        ValueError: there is no such device on any machine.
    """

    kind: DeviceKind
    index: int = 0  # among the machine's GPUs that are visible to this process

    def __post_init__(self) -> None:
        if self.index < 0 or (self.kind == "cpu" and self.index):
            raise ValueError(f"index is {self.index}, it must be {'0 on the CPU' if self.kind == 'cpu' else 'at least 0'}")

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"


CPU = Device("cpu")
