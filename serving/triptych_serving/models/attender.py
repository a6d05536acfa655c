"""The engine for attention weights: its graph is loaded by the first request, and runs one input at a time on the CPU."""

import math
import threading
from collections.abc import Mapping, Sequence

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions, Runner
from triptych_serving.errors import UnavailableError, UnsupportedError
from triptych_serving.models.request_cost import NUMBER_BYTES, check_results
from triptych_serving.runtime.session import Array, Session
from triptych_serving.scheduling.admission import QueueLimits, with_queue
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

OTHER_BYTES = 1 << 20  # of a response, besides the weights


class AttentionRunner(Runner):
    """Runs single inputs; results map the outputs `encoder`, `decoder` and `cross` to `[layers, heads, targets, sources]`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def prepare(self, items: Sequence[Item]) -> dict[str, Array]:
        """Return the arrays of the only item that the graph reads."""
        [item] = items
        return {name: item.payload[name] for name in self._session.inputs}

    def run(self, batch: dict[str, Array]) -> list[Array]:
        return self._session.run(batch, self._session.outputs)

    def finish(self, items: Sequence[Item], outputs: list[Array]) -> None:
        for item in items:
            item.result = {name: weights[0] for name, weights in zip(self._session.outputs, outputs, strict=True)}


class Attender:
    """Computes the attention weights of one model. Thread-safe.

    Args:
        name: the model's.
        bundle: holds the graph.
        graph: its file name; empty in bundles without one.
        saturation_free: as in the manifest.
        limits: of the queue, and of the response.
        gives_way: see OneShotOptions.
    """

    def __init__(
        self, name: str, bundle: Bundle, graph: str, saturation_free: bool, limits: QueueLimits, gives_way: bool = False
    ) -> None:
        self._name, self._path = name, bundle.path(graph) if graph else None
        self._saturation_free, self._limits, self._gives_way = saturation_free, limits, gives_way
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
            if self._path is None:
                raise UnsupportedError(
                    f"the bundle of model {self._name!r} has no attention graph; add one with `triptych export BUNDLE --out "
                    "MODELS` (Swin and recurrent models cannot have one)"
                )
            if not self.engines:
                self._session = Session(self._path, saturation_free=self._saturation_free)
                limits = with_queue(BatchLimits(batch_rows=1), self._limits)
                engine = OneShotEngine(AttentionRunner(self._session), OneShotOptions(1, limits, gives_way=self._gives_way))
                engine.start()
                self.engines = (engine,)
            return self.engines[0]

    def item(self, inputs: Mapping[str, Array], field: str, **lengths: int) -> Item:
        """Return the item of an input; its result is a dict of weights.

        Args:
            inputs: of the graph, `[1, ...]`.
            field: of the request, for errors.
            lengths: S and T, the positions of the input and of the target; none for an image, whose size the model sets.

        Raises:
            InvalidInputError: the weights do not fit into a response.
        """
        _ = self.engine
        assert self._session is not None
        shapes = {name: self._session.shape(name)[1:] for name in self._session.outputs if lengths}
        sizes = {name: [int(lengths.get(str(length), length or 0)) for length in shape] for name, shape in shapes.items()}
        parts = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in sizes.items())
        size = NUMBER_BYTES * sum(map(math.prod, sizes.values())) + OTHER_BYTES
        what = f"attention weights ({parts}: layers x heads x targets x sources)"
        check_results(field, size, what, self._limits, "send a shorter text, or use a smaller model")
        return Item(inputs, sum(lengths.values()) or 1)

    def close(self, drain: bool) -> None:
        """Stop the engine: with `drain`, after all accepted requests."""
        with self._lock:
            self._closed = True
        for engine in self.engines:
            engine.close(drain)
