"""The base class of loaded models, whatever their task."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import Manifest
from triptych_serving.models.capabilities import capabilities_of
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.engine import Engine


class Model(ABC):
    """One version of one model, ready to serve. Thread-safe.

    Args:
        precision: None: the bundle's default.
        devices: the CPU, or GPUs.

    Raises:
        BundleError: the bundle lacks the precision, or a file cannot be loaded.
        DeviceError: the precision does not run on the devices, or a device cannot be used or has no room.
        EngineError: the runtime failed.
    """

    manifest: Manifest
    labels: tuple[str, ...] = ()  # names of its classes, if it classifies

    def __init__(
        self,
        name: str,
        version: int,
        bundle: Bundle,
        precision: str | None,
        devices: tuple[Device, ...],
        limits: QueueLimits,
    ) -> None:
        self.name, self.version, self.devices = name, version, devices
        self.precision = bundle.precision(precision)
        self.capabilities = capabilities_of(bundle.manifest)  # tasks that it can be requested for
        self.weight_bytes = bundle.weight_bytes(self.precision)
        self._limits = limits

    @property
    @abstractmethod
    def reserved(self) -> Mapping[Device, int]:
        """Bytes reserved on each GPU."""

    @property
    @abstractmethod
    def engines(self) -> Sequence[Engine[Any]]:
        """The engines created so far."""

    def count_rows(self) -> tuple[int, int]:
        """Return the numbers of running and waiting texts or images."""
        counts = [engine.count_rows() for engine in self.engines]
        return sum(running for running, _ in counts), sum(waiting for _, waiting in counts)

    @abstractmethod
    def describe(self) -> str:
        """Describe the model and its resources for the log."""

    @abstractmethod
    def close(self, drain: bool = True) -> None:
        """Stop the engines and free what they hold: with `drain`, after all accepted requests; else at once. Idempotent."""
