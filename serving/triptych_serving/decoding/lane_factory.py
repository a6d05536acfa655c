"""Makes the lanes of one model. Sessions are loaded when a row first needs them, and shared by the workers of a device."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.cuda.greedy_lane import DeviceGreedyLane
from triptych_serving.decoding.cuda.host_mirrored_cache import HostMirroredCache
from triptych_serving.decoding.cuda.kv_cache import DeviceKVCache, Prefill, memory_shape
from triptych_serving.decoding.cuda.slots import DeviceSlots
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import HostKVCache, KVCache, cache_lengths
from triptych_serving.decoding.lane import Lane
from triptych_serving.decoding.logits_processor import make_processor, single_tokens
from triptych_serving.decoding.search_lane import MAX_CANDIDATES, SearchLane
from triptych_serving.decoding.shortlist import Shortlist, read_shortlist
from triptych_serving.decoding.slots import SearchSlots
from triptych_serving.decoding.vocab_subset import Projection, VocabSubset
from triptych_serving.errors import UnsupportedError
from triptych_serving.runtime.memory import Memory
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import Session, SessionPlace
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Row
from triptych_serving.text.tokenizers import read_tokenizer
from triptych_serving.text.vocabulary import Vocabulary

SEARCHES = (LaneKind.SEARCH, LaneKind.SHORT_SEARCH)
SHORT = (LaneKind.SHORT_GREEDY, LaneKind.SHORT_SEARCH)
SEARCH_SLOTS = 2  # times those of a greedy lane: a text takes several, and encoding few texts at once is slow


class LaneFactory:
    """Thread-safe.

    Args:
        bundle: contains the graphs.
        precision: of the graphs.
        slots: of each greedy lane.
        places: devices for graphs in fp16, whose lanes keep rows in device memory. Empty: on the CPU, over host arrays.

    Raises:
        BundleError: a graph cannot be loaded.
        DeviceError: a device has no room, or cannot be used.
    """

    def __init__(self, bundle: Bundle, precision: str, slots: int, places: Sequence[SessionPlace] = ()) -> None:
        self._bundle = bundle
        self._manifest = bundle.manifest_of(TranslationManifest)
        self._graphs = self._manifest.precisions[precision]
        self._slots = slots
        self._places: tuple[SessionPlace | None, ...] = tuple(places) or (None,)
        self._lock = threading.RLock()
        self._sessions: dict[tuple[str, int], Session] = {}  # by file name and index of the place
        self._prefills: dict[int, Prefill] = {}  # by worker
        short = bool(self._graphs.shortlist)
        self.usual = LaneKind.SHORT_GREEDY if short else LaneKind.GREEDY  # for rows without options
        self._shortlist = self._read_shortlist() if short else None
        try:
            self._load(self._graphs.encoder)
            self._load(self._graph(self.usual))
        except BaseException:
            self.close()  # a caller that keeps the error must not keep the sessions
            raise

    def assign(self, rows: Sequence[Row]) -> None:
        """Set each row's shortlist."""
        if self._shortlist is not None:
            for row in rows:
                row.shortlist = None if _needs_all_tokens(row) else self._shortlist.ids(row.source, row.prefix)

    def is_open_for(self, rows: Sequence[Row]) -> bool:
        """Tell whether `open_for` has nothing to do."""
        last = len(self._places) - 1  # loaded last
        loaded = all((self._graph(kind), last) in self._sessions for kind in {LaneKind.of(row) for row in rows})
        return loaded and not any(row.search.suppressed for row in rows)

    def open_for(self, rows: Sequence[Row]) -> None:
        """Load what the rows' lanes need before the engine does: about 0.1 s for the first such row. Compile suppressed texts.

        Raises:
            UnsupportedError: the bundle is an old one, without a search graph.
            BundleError: a graph cannot be loaded.
        """
        for kind in {LaneKind.of(row) for row in rows}:
            self.open(kind)
        processors = {}
        for row in rows:
            if row.search.suppressed:
                key = id(row.search), row.frame.forced
                if key not in processors:
                    processors[key] = make_processor(row, self._manifest.tokens, self._vocabulary)
                row.processor = processors[key]

    def open_all(self) -> list[LaneKind]:
        """Load all graphs of the bundle; return the kinds of lanes that it has.

        Raises:
            BundleError: a graph cannot be loaded.
        """
        kinds = [kind for kind in LaneKind if self._graph(kind)]
        for kind in kinds:
            self.open(kind)
        return kinds

    def open(self, kind: LaneKind) -> None:
        """Load what lanes of this kind need.

        Raises:
            UnsupportedError: the bundle is an old one, without a search graph.
            BundleError: a graph cannot be loaded.
        """
        if not self._graph(kind):
            raise UnsupportedError("this bundle decodes greedily only; export the checkpoint again for other searches")
        with self._lock:
            if kind in SEARCHES:
                _ = self._vocabulary
            self._load(self._graph(kind))

    def make(self, kind: LaneKind, worker: int = 0) -> Lane:
        """Make a worker's lane over graphs that are loaded.

        Args:
            kind: of the lane.
            worker: its number; workers take the places in turn.

        Raises:
            DeviceMemoryError: the device has no room.
        """
        with self._lock:
            index = worker % len(self._places)
            place = self._places[index]
            encoder, step = self._session(self._graphs.encoder, index), self._session(self._graph(kind), index)
            if place is not None:
                return self._make_on(place.memory, kind, worker, encoder, step)
            subset = VocabSubset(self._projection, self._manifest.tokens.end) if kind in SHORT else None
            if kind in SEARCHES:
                cache = HostKVCache(encoder, step, self._manifest, SEARCH_SLOTS * self._slots)
                return self._search_lane(cache, step, subset)
            return GreedyLane(encoder, step, self._manifest, self._slots, subset)

    def close(self) -> None:
        """Drop the sessions and their memory. After it no lane may be made or used."""
        with self._lock:
            self._sessions.clear()
            self._prefills.clear()

    def _make_on(self, memory: Memory, kind: LaneKind, worker: int, encoder: Session, step: Session) -> Lane:
        manifest = self._manifest
        if worker not in self._prefills:  # one for all lanes of a thread
            shape = memory_shape(step, manifest.decoder)
            self._prefills[worker] = Prefill(encoder, cache_lengths(manifest.limits)[1], shape, memory)
        count = SEARCH_SLOTS * self._slots if kind in SEARCHES else self._slots
        cache = DeviceKVCache(self._prefills[worker], step, manifest, count, memory)
        if kind in SEARCHES:
            return self._search_lane(HostMirroredCache(cache, step, memory), step)
        return DeviceGreedyLane(DeviceSlots(cache, step, manifest.tokens.start, memory), manifest.tokens, memory)

    def _search_lane(self, cache: KVCache, step: Session, subset: VocabSubset | None = None) -> SearchLane:
        width = step.output_width("log_probabilities") if subset is None else 0
        slots = SearchSlots(cache, self._manifest, width, subset)
        return SearchLane(slots, self._manifest.tokens, self._vocabulary)

    def _read_shortlist(self) -> Shortlist:
        banned = single_tokens(self._manifest.generation.suppressed_tokens)
        return read_shortlist(self._bundle.path(self._graphs.shortlist), len(self._projection.weights), banned)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.of(read_tokenizer(self._bundle.path(self._manifest.tokenizers[1])))

    @cached_property
    def _projection(self) -> Projection:
        return Projection.read(self._bundle.path(self._graphs.projection))

    def _graph(self, kind: LaneKind) -> str:
        graphs = self._graphs
        return {
            LaneKind.GREEDY: graphs.step,
            LaneKind.SEARCH: graphs.search,
            LaneKind.SHORT_GREEDY: graphs.short_step,
            LaneKind.SHORT_SEARCH: graphs.short_search,
        }[kind]

    def _load(self, graph: str) -> None:
        """Load a graph at every place."""
        for index in range(len(self._places)):
            self._session(graph, index)

    def _session(self, graph: str, index: int) -> Session:
        with self._lock:
            if (graph, index) not in self._sessions:
                place = self._places[index]
                if place is not None:
                    place = replace(place, captures=graph == self._graphs.step)  # the others have too many shapes
                path = self._bundle.path(graph)
                steps = place is None and graph != self._graphs.encoder
                kernels = native_kernels(self._manifest.decoder.head_dim) if steps else None
                self._sessions[graph, index] = Session(path, 1, self._graphs.saturation_free, place, kernels)
            return self._sessions[graph, index]


def _needs_all_tokens(row: Row) -> bool:
    search = row.search
    return search.samples and not 0 < search.sampling_topk <= MAX_CANDIDATES
