"""Base classes of models whose graphs run once per input: any, and those of the text and image families."""

from collections import Counter
from collections.abc import Mapping

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import INT8_WEIGHTS, ImageManifest, TextManifest
from triptych_serving.bundle.manifest.base import Graph
from triptych_serving.encoding.engine import OneShotEngine
from triptych_serving.encoding.loading import PLAIN_TENSORS, GraphRunners, LoadedEncoder, load_encoder
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.attender import Attender
from triptych_serving.models.model import Model
from triptych_serving.runtime.device import Device


class OneShotModel(Model):
    """A model whose graphs run once per input, each behind an engine."""

    def __init__(self, name: str, version: int, bundle: Bundle, options: EncoderOptions) -> None:
        super().__init__(name, version, bundle, options.precision, options.devices, options.limits)
        self._graphs: list[LoadedEncoder] = []

    def _load_graph(
        self, bundle: Bundle, options: EncoderOptions, file: Graph, runners: GraphRunners = PLAIN_TENSORS
    ) -> LoadedEncoder:
        """Load a graph and start its engine."""
        owner = f"model {self.name} version {self.version}"
        self._graphs.append(load_encoder(owner, bundle, self.precision, self.weight_bytes, file, runners, options))
        return self._graphs[-1]

    @property
    def engines(self) -> tuple[OneShotEngine, ...]:
        return tuple(graph.engine for graph in self._graphs)

    @property
    def reserved(self) -> Mapping[Device, int]:
        return sum((Counter(graph.reserved) for graph in self._graphs), Counter())

    def close(self, drain: bool = True) -> None:
        for graph in self._graphs:
            graph.close(drain)


class EncoderModel(OneShotModel):
    """A model of the text or image family: its graph, and the one for attention weights."""

    manifest: TextManifest | ImageManifest

    def _start(self, bundle: Bundle, options: EncoderOptions, runners: GraphRunners) -> None:
        """Load the graph and start its engine."""
        file = self.manifest.precisions[self.precision]
        self._encoder = self._load_graph(bundle, options, file, runners)
        self.engine = self._encoder.engine
        restores, limits = self.precision == INT8_WEIGHTS, options.limits
        self.attender = Attender(self.name, bundle, file.attend, file.saturation_free, limits, options.gives_way, restores)

    @property
    def engines(self) -> tuple[OneShotEngine, ...]:
        return (*super().engines, *self.attender.engines)

    def close(self, drain: bool = True) -> None:
        super().close(drain)
        self.attender.close(drain)
