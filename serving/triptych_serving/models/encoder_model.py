"""Base classes of models whose graphs run once per input: any, and those of the text and image families."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import ImageManifest, TextManifest
from triptych_serving.bundle.manifest.base import Graph
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.engine import OneShotEngine, Runner
from triptych_serving.encoding.loading import EncoderGraph, LoadedEncoder, load_encoder
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.encoding.tensor_runner import TensorRunner
from triptych_serving.models.attender import Attender
from triptych_serving.models.capabilities import capabilities_of
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits


class OneShotModel:
    """One version of one model whose graphs run once per input, each behind an engine. Thread-safe."""

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions) -> None:
        self.name, self.version = name, version
        self.precision = bundle.precision(options.precision)
        self.capabilities = capabilities_of(bundle.manifest)
        self.weight_bytes = bundle.weight_bytes(self.precision)
        self.devices = options.devices
        self._limits = options.limits
        self._graphs: list[LoadedEncoder] = []

    def _load_graph(
        self,
        bundle: Bundle,
        options: EncoderOptions,
        file: Graph,
        width: int = 0,
        runner: Callable[[Session], Runner] = TensorRunner,
        plan: Callable[[BatchLimits, Session], GraphPlan] | None = None,
        device_runner: Callable[[Any], Runner] = TensorRunner,
    ) -> LoadedEncoder:
        """Load a graph and start its engine; arguments as EncoderGraph has them, by default those of plain tensors."""
        about = f"model {self.name} version {self.version}", bundle, self.weight_bytes, self.precision, file
        self._graphs.append(load_encoder(EncoderGraph(*about, width, runner, plan, device_runner), options))
        return self._graphs[-1]

    @property
    def engines(self) -> tuple[OneShotEngine, ...]:
        """The engines created so far."""
        return tuple(graph.engine for graph in self._graphs)

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes reserved on each GPU."""
        return sum((Counter(graph.reserved) for graph in self._graphs), Counter())

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting inputs."""
        running, waiting = (sum(numbers) for numbers in zip(*(engine.load() for engine in self.engines), strict=True))
        return running, waiting

    def close(self, drain: bool = True) -> None:
        """Stop the engines: with `drain`, after all accepted requests; else at once, failing the others. Idempotent."""
        for graph in self._graphs:
            graph.close(drain)


class EncoderModel(OneShotModel):
    """A model of the text or image family: its graph, and the one for attention weights.

    Raises:
        BundleError: the bundle lacks the precision, or a file cannot be loaded.
        DeviceError: a device cannot be used, or has no room.
        EngineError: the runtime failed.
    """

    manifest: TextManifest | ImageManifest

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
        self._encoder = self._load_graph(bundle, options, file, width, runner, plan, device_runner)
        self.engine = self._encoder.engine
        self.attender = Attender(self.name, bundle, file.attend, file.saturation_free, options.limits, options.gives_way)

    @property
    def engines(self) -> tuple[OneShotEngine, ...]:
        return (*super().engines, *self.attender.engines)

    def close(self, drain: bool = True) -> None:
        super().close(drain)
        self.attender.close(drain)
