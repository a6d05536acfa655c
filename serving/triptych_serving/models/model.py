"""What every loaded model is, whatever its task."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from triptych_serving.bundle.manifest import Manifest
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.step_stats import StepStats


class EngineStatus(Protocol):
    """An engine as those see it who only look on. Thread-safe."""

    @property
    def counters(self) -> Counters:
        """How calls ended so far."""

    @property
    def steps(self) -> StepStats:
        """What runs of its graphs took so far, and how many rows each had."""

    @property
    def bytes(self) -> int:
        """Memory of its caches, in bytes."""

    def load(self) -> tuple[int, int]:
        """Rows that run, rows that wait."""

    def forget(self) -> None:
        """Calls so far count for nothing."""


class Model(Protocol):
    """One version of one model, ready to serve. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def precision(self) -> str: ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where it runs: the CPU, or GPUs."""

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes that are kept for it on each GPU."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """What it tells apart; empty where it does not classify."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can be asked for: see triptych_serving.models.capabilities."""

    @property
    def weight_bytes(self) -> int:
        """Of its graphs."""

    @property
    def engines(self) -> Sequence[EngineStatus]:
        """Those that work so far."""

    def load(self) -> tuple[int, int]:
        """Texts or images that run; those that wait."""

    def describe(self) -> str:
        """For the log: what it does and what it takes."""

    def close(self, drain: bool = True) -> None:
        """Stop its engine."""
