"""The interface of a loaded model, whatever its task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from triptych_serving.bundle.manifest import Manifest
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.step_stats import StepStats


class EngineStatus(Protocol):
    """Status of an engine for metrics and logs. Thread-safe."""

    @property
    def counters(self) -> Counters:
        """Calls by outcome."""

    @property
    def steps(self) -> StepStats:
        """Durations and row counts of graph runs."""

    @property
    def bytes(self) -> int:
        """Memory of its caches, in bytes."""

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting rows."""

    def forget(self) -> None:
        """Reset the counters."""

    def when_failed(self, listener: Callable[[str], None]) -> None:
        """Call a listener, in any thread and with the reason, if the engine cannot go on."""


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
        """The CPU, or GPUs."""

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes reserved on each GPU."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its classes; empty if it does not classify."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Tasks that it can be requested for, see triptych_serving.models.capabilities."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of its graphs' weights."""

    @property
    def engines(self) -> Sequence[EngineStatus]:
        """The engines created so far."""

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting texts or images."""

    def describe(self) -> str:
        """Describe the model and its resources for the log."""

    def close(self, drain: bool = True) -> None:
        """Stop its engines."""
