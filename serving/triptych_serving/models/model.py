"""The interface of a loaded model, whatever its task."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from triptych_serving.bundle.manifest import Manifest
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.engine import Engine


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
    def engines(self) -> Sequence[Engine[Any]]:
        """The engines created so far."""

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting texts or images."""

    def describe(self) -> str:
        """Describe the model and its resources for the log."""

    def close(self, drain: bool = True) -> None:
        """Stop its engines."""
