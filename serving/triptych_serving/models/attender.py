"""The engine for attention weights: its graph is loaded by the first request, and runs one input at a time on the CPU."""

import math
import threading
from collections.abc import Mapping
from functools import partial

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions
from triptych_serving.encoding.tensor_runner import TensorRows, TensorRunner
from triptych_serving.errors import UnavailableError, UnsupportedError
from triptych_serving.models.request_cost import NUMBER_BYTES, check_results
from triptych_serving.runtime.session import Array, Session
from triptych_serving.scheduling.admission import QueueLimits, with_queue
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

OTHER_BYTES = 1 << 20  # of a response, besides the weights
EXPORT = "add one with `triptych export BUNDLE --out MODELS` (Swin, PVT, ResNet and recurrent models cannot have one)"


class Attender:
    """Computes the attention weights of one model. Thread-safe.

    Args:
        graph: its file name; empty in bundles without one.
        saturation_free: as in the manifest.
        limits: of the queue, and of the response.
        gives_way: see OneShotOptions.
        restores_weights: as of Session.
    """

    def __init__(
        self,
        name: str,
        bundle: Bundle,
        graph: str,
        saturation_free: bool,
        limits: QueueLimits,
        gives_way: bool,
        restores_weights: bool = False,
    ) -> None:
        self._name, self.has_graph = name, bool(graph)
        self._open = partial(Session, bundle.path(graph), saturation_free=saturation_free, restores_weights=restores_weights)
        self._limits, self._gives_way = limits, gives_way
        self._lock = threading.Lock()
        self._closed = False
        self._session: Session | None = None
        self.engines: tuple[OneShotEngine, ...] = ()  # none until the first request

    @property
    def engine(self) -> OneShotEngine:
        """The engine, created at the first use; that takes some tenths of a second.

        Raises:
            UnavailableError: the model is closed.
            UnsupportedError: the bundle has no attention graph.
            BundleError: the graph cannot be loaded.
        """
        with self._lock:
            if self._closed:
                raise UnavailableError("the model is shutting down")
            if not self.has_graph:
                raise UnsupportedError(f"the bundle of model {self._name!r} has no attention graph; {EXPORT}")
            if not self.engines:
                self._session = self._open()
                limits = with_queue(BatchLimits(batch_rows=1), self._limits)
                engine = OneShotEngine(TensorRunner(self._session), OneShotOptions(1, limits, gives_way=self._gives_way))
                engine.start()
                self.engines = (engine,)
            return self.engines[0]

    def check(self, field: str, remedy: str, **lengths: int) -> None:
        """Reject an input whose weights do not fit into a response, before it runs. Loads the graph if it is not.

        Args:
            field: of the request, for errors.
            lengths: S and T, the positions of the input and of the target; none for an image, whose graph has a fixed size.

        Raises:
            InvalidInputError: the weights do not fit.
            UnsupportedError: the bundle has no attention graph, or one whose size for an image is unknown.
        """
        _ = self.engine
        assert self._session is not None
        shapes = {name: self._session.shape(name)[1:] for name in self._session.outputs}
        sizes = {name: [lengths.get(str(size), size) for size in shape] for name, shape in shapes.items()}
        count = 0
        for shape in sizes.values():
            numbers = [size for size in shape if isinstance(size, int)]
            if len(numbers) < len(shape):
                raise UnsupportedError(f"the attention graph of model {self._name!r} does not tell its sizes; {EXPORT}")
            count += math.prod(numbers)
        parts = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in sizes.items())
        what = f"attention weights ({parts}: layers x heads x targets x sources)"
        check_results(field, NUMBER_BYTES * count + OTHER_BYTES, what, self._limits, remedy)

    def item(self, inputs: Mapping[str, Array], tokens: int = 1) -> Item:
        """Return the item of an input that was checked, `[1, ...]`; its result maps the graph's outputs to `[1, ...]`."""
        assert self._session is not None
        read = {name: inputs[name] for name in self._session.inputs}
        return Item(TensorRows(read, 1, self._session.outputs), tokens)

    def close(self, drain: bool) -> None:
        """Stop the engine: with `drain`, after all accepted requests."""
        with self._lock:
            self._closed = True
        for engine in self.engines:
            engine.close(drain)
