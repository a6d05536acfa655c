"""Makes the lanes of one decoder-only model."""

from collections.abc import Sequence
from dataclasses import dataclass

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import (
    FP16,
    WITH_INT8_CACHES,
    DecoderShape,
    Generation,
    Limits,
    SpecialTokens,
    TextGenerationManifest,
)
from triptych_serving.bundle.manifest.translation import TOKENIZER_FILE
from triptych_serving.decoding.cuda.prompt_cache import DevicePromptCache
from triptych_serving.decoding.lane import Lane
from triptych_serving.decoding.lane_factory import LaneGraphs
from triptych_serving.decoding.prompt_cache import PrefixCache, PromptGraphs, PromptKVCache, PromptReader
from triptych_serving.decoding.prompt_lanes import PromptGreedyLane, PromptSearchLane
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.errors import BundleError
from triptych_serving.runtime.native.library import cached_bytes, native_kernels
from triptych_serving.runtime.session import GENERATION, PRODUCTS, Session, SessionPlace
from triptych_serving.scheduling.decode_scheduler import LaneKind

NONE = -1  # as an id: there is no such token
FLOAT_BYTES, HALF_BYTES = 4, 2
CACHED = frozenset(WITH_INT8_CACHES.values())
NEEDS_KERNELS = (
    "precision {} of a decoder-only model needs the native kernels, which are not installed, or switched off; "
    "choose another precision, or install triptych where there is a C++ compiler"
)


def kernel_set(head_dim: int) -> str:
    """Return which native kernels run a decoder-only model: those of products alone, if none attend to heads of this size."""
    return PRODUCTS if native_kernels(head_dim) is None else GENERATION


@dataclass(frozen=True)
class PromptSpec:
    """A decoder-only model as slots see it: a row's source is one token, its target the whole context."""

    tokens: SpecialTokens
    limits: Limits
    generation: Generation
    shape: DecoderShape
    cached_bytes: int  # of a key or value

    @classmethod
    def of(cls, manifest: TextGenerationManifest, precision: str, context: int) -> "PromptSpec":
        """Describe a model that is served with a context of this many tokens."""
        end, *others = manifest.tokens.ends or (NONE,)
        size = manifest.decoder.head_dim
        return cls(
            SpecialTokens(manifest.tokens.pad, NONE, end, tuple(others)),
            Limits(1, context),
            manifest.generation,
            manifest.decoder,
            cached_bytes(size) if precision in CACHED else size * (HALF_BYTES if precision == FP16 else FLOAT_BYTES),
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of the caches of one row."""
        shape, length = self.shape, self.limits.max_target_tokens
        return 2 * self.cached_bytes * shape.layers * shape.heads * length


@dataclass(frozen=True)
class PromptOptions:
    """Options of loading a decoder-only model."""

    context: int  # tokens of prompt and output that the caches have room for
    slots: int  # of each greedy lane
    threads: int  # inside one run of a graph
    prefix_bytes: int  # of the prefix cache


class PromptLaneFactory(LaneGraphs):
    """Makes the lanes of one decoder-only model. The step graph reads the prompts of all lanes. Thread-safe.

    Args:
        precision: of the graphs.
        places: devices for graphs in fp16, whose lanes keep rows in device memory. Empty: on the CPU, over host arrays.

    Raises:
        BundleError: a graph cannot be loaded, or needs native kernels that are not there.
        DeviceError: a device has no room, or cannot be used.
    """

    def __init__(self, bundle: Bundle, precision: str, options: PromptOptions, places: Sequence[SessionPlace] = ()) -> None:
        manifest = bundle.manifest_of(TextGenerationManifest)
        if precision in CACHED and native_kernels(manifest.decoder.head_dim) is None:
            raise BundleError(bundle.folder, [NEEDS_KERNELS.format(precision)])
        self._files = files = manifest.precisions[precision]
        graphs = {LaneKind.GREEDY: files.step, LaneKind.SEARCH: files.search}
        super().__init__(
            bundle, graphs, TOKENIZER_FILE if manifest.colours is None else "", options.slots, tuple(places) or (None,)
        )
        self._options = options
        self.spec = PromptSpec.of(manifest, precision, options.context)
        self.prefixes = PrefixCache(options.prefix_bytes)
        self._lanes: dict[int, dict[LaneKind, Lane]] = {}  # by worker, whose thread alone uses them
        try:
            self._load(files.step)
        except BaseException:
            self.close()  # a caller that keeps the error must not keep the sessions
            raise

    def make(self, kind: LaneKind, worker: int = 0) -> Lane:
        spec, index = self.spec, worker % len(self._places)
        reader, step = self._session(self._files.step, index), self._session(self._graphs[kind], index)
        graphs = PromptGraphs(reader, step, lambda: self._session(self._files.score, index))
        size, place = (spec.shape, self._options.context, self._count(kind)), self._places[index]
        cache = PromptKVCache(graphs, *size) if place is None else DevicePromptCache(graphs, *size, place.memory)
        lanes = self._lanes.setdefault(worker, {})
        vocabulary_size = self._bundle.manifest_of(TextGenerationManifest).vocabulary_size
        prompts = PromptReader(cache, self.prefixes, lambda: any(lane.updated_rows for lane in lanes.values()), vocabulary_size)
        if kind is LaneKind.GREEDY:
            lanes[kind] = PromptGreedyLane(Slots(cache, spec), prompts, spec.tokens)
        else:
            slots = SearchSlots(cache, spec, step.output_width("log_probabilities"))
            lanes[kind] = PromptSearchLane(slots, prompts, spec.tokens, self.vocabulary)
        return lanes[kind]

    def close(self) -> None:
        super().close()
        for lanes in self._lanes.values():
            lanes.clear()  # lanes refer to those beside them, and so to themselves

    def _make_session(self, graph: str, place: SessionPlace | None) -> Session:
        kernels = native_kernels() if place is None else None
        options = self._options.threads, self._files.saturation_free, place, kernels, kernel_set(self.spec.shape.head_dim)
        return Session(self._bundle.path(graph), *options)
