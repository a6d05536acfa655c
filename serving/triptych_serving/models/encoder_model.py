"""What models of the text and image families share: a graph that runs once per input, and one for attention weights."""

from collections.abc import Callable, Mapping
from typing import Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import ImageManifest, TextManifest
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.engine import OneShotEngine, Runner
from triptych_serving.encoding.loading import EncoderGraph, load_encoder
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.attender import Attender
from triptych_serving.models.capabilities import capabilities_of
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits


class EncoderModel:
    """One version of one model. Thread-safe.

    Raises:
        BundleError: the bundle lacks the precision, or a file cannot be loaded.
        DeviceError: a device cannot be used, or has no room.
        EngineError: the runtime failed.
    """

    manifest: TextManifest | ImageManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions) -> None:
        self.name, self.version = name, version
        self.precision = bundle.precision(options.precision)
        self.capabilities = capabilities_of(bundle.manifest)
        self.weight_bytes = bundle.weight_bytes(self.precision)
        self.devices = options.devices

    def _start(
        self,
        bundle: Bundle,
        options: EncoderOptions,
        width: int,
        runner: Callable[[Session], Runner],
        plan: Callable[[BatchLimits, Session], GraphPlan],
        device_runner: Callable[[Any], Runner],
    ) -> None:
        """Load the graph and start its engine; arguments as EncoderGraph has them."""
        file = self.manifest.precisions[self.precision]
        about = f"model {self.name} version {self.version}", bundle, self.weight_bytes, self.precision, file
        self._limits = options.limits
        self._encoder = load_encoder(EncoderGraph(*about, width, runner, plan, device_runner), options)
        self.engine = self._encoder.engine
        self.attender = Attender(self.name, bundle, file.attend, file.saturation_free, options.limits, options.gives_way)

    @property
    def engines(self) -> tuple[OneShotEngine, ...]:
        """The engines created so far."""
        return (self.engine, *self.attender.engines)

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes reserved on each GPU."""
        return self._encoder.reserved

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting texts or images."""
        running, waiting = (sum(numbers) for numbers in zip(*(engine.load() for engine in self.engines), strict=True))
        return running, waiting

    def close(self, drain: bool = True) -> None:
        """Stop the engines: with `drain`, after all accepted requests; else at once, failing the others. Idempotent."""
        self._encoder.close(drain)
        self.attender.close(drain)
