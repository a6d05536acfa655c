"""Makes the lanes of one model, for translation or text generation."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.decoding.vocab_subset import Projection, VocabSubset
from triptych_serving.errors import UnsupportedError
from triptych_serving.runtime.memory import Memory
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import Session, SessionPlace
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Row
from triptych_serving.text.tokenizers import read_tokenizer
from triptych_serving.text.vocabulary import Vocabulary

SEARCHES = (LaneKind.SEARCH, LaneKind.SHORT_SEARCH, LaneKind.WIDE)
SHORT = (LaneKind.SHORT_GREEDY, LaneKind.SHORT_SEARCH)
SEARCH_SLOTS = 2  # times those of a greedy lane: a text takes several, and encoding few texts at once is slow


class LaneGraphs(ABC):
    """The graphs of one model's lanes: loaded when a row first needs them, shared by the workers of a device. Thread-safe.

    Args:
        graphs: file name of each kind's graph; empty where the bundle has none.
        tokenizer: file name; has the bytes of the tokens that are generated. Empty: they are no texts.
        slots: of each greedy lane.
        places: of the sessions; None: the CPU.
    """

    usual = LaneKind.GREEDY  # for rows without options

    def __init__(
        self,
        bundle: Bundle,
        graphs: Mapping[LaneKind, str],
        tokenizer: str,
        slots: int,
        places: Sequence[SessionPlace | None] = (None,),
    ) -> None:
        self._bundle, self._tokenizer = bundle, tokenizer
        self._graphs, self._slots, self._places = graphs, slots, places
        self._lock = threading.RLock()
        self._sessions: dict[tuple[str, int], Session] = {}  # by file name and index of the place

    @abstractmethod
    def make(self, kind: LaneKind, worker: int = 0) -> Lane:
        """Make a worker's lane over graphs that are loaded.

        Args:
            worker: its number; workers take the places in turn.

        Raises:
            DeviceMemoryError: the device has no room.
        """

    def is_open_for(self, rows: Sequence[Row]) -> bool:
        """Tell whether `open_for` has nothing to do."""
        last = len(self._places) - 1  # loaded last
        return all((self._graphs[kind], last) in self._sessions for kind in {LaneKind.of(row) for row in rows})

    def open_for(self, rows: Sequence[Row]) -> None:
        """Load what the rows' lanes need before the engine does: about 0.1 s for the first such row.

        Raises:
            UnsupportedError: the bundle is an old one, without a search graph.
            BundleError: a graph cannot be loaded.
        """
        for kind in {LaneKind.of(row) for row in rows}:
            self.open(kind)

    def open_all(self) -> list[LaneKind]:
        """Load all graphs of the bundle's lanes; return the kinds of lanes that it has.

        Raises:
            BundleError: a graph cannot be loaded.
        """
        kinds = [kind for kind, graph in self._graphs.items() if graph]
        for kind in kinds:
            self.open(kind)
        return kinds

    def open(self, kind: LaneKind) -> None:
        """Load what lanes of this kind need.

        Raises:
            UnsupportedError: the bundle is an old one, without a search graph.
            BundleError: a graph cannot be loaded.
        """
        if not self._graphs[kind]:
            raise UnsupportedError("this bundle decodes greedily only; export the checkpoint again for other searches")
        with self._lock:
            if kind in SEARCHES:
                _ = self.vocabulary
            self._load(self._graphs[kind])

    def close(self) -> None:
        """Drop the sessions and their memory. After it no lane may be made or used."""
        with self._lock:
            self._sessions.clear()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Bytes of each token."""
        return Vocabulary.of(read_tokenizer(self._bundle.path(self._tokenizer))) if self._tokenizer else Vocabulary(())

    @abstractmethod
    def _make_session(self, graph: str, place: SessionPlace | None) -> Session:
        """Load a graph at a place."""

    def _count(self, kind: LaneKind) -> int:
        """Return the number of a lane's slots; a wide row takes as many as a greedy lane has, at most."""
        return self._slots * (SEARCH_SLOTS if kind in SEARCHES and kind is not LaneKind.WIDE else 1)

    def _load(self, graph: str) -> None:
        """Load a graph at every place."""
        for index in range(len(self._places)):
            self._session(graph, index)

    def _session(self, graph: str, index: int = 0) -> Session:
        with self._lock:
            if (graph, index) not in self._sessions:
                self._sessions[graph, index] = self._make_session(graph, self._places[index])
            return self._sessions[graph, index]


class LaneFactory(LaneGraphs):
    """Makes the lanes of one translation model. Thread-safe.

    Args:
        precision: of the graphs.
        slots: of each greedy lane.
        places: devices for graphs in fp16, whose lanes keep rows in device memory. Empty: on the CPU, over host arrays.

    Raises:
        BundleError: a graph cannot be loaded.
        DeviceError: a device has no room, or cannot be used.
    """

    def __init__(self, bundle: Bundle, precision: str, slots: int, places: Sequence[SessionPlace] = ()) -> None:
        self._manifest = manifest = bundle.manifest_of(TranslationManifest)
        self._files = files = manifest.precisions[precision]
        graphs = {
            LaneKind.GREEDY: files.step,
            LaneKind.SEARCH: files.search,
            LaneKind.SHORT_GREEDY: files.short_step,
            LaneKind.SHORT_SEARCH: files.short_search,
        }
        super().__init__(bundle, graphs, manifest.tokenizers[1], slots, tuple(places) or (None,))
        self._prefills: dict[int, Prefill] = {}  # by worker
        short = bool(files.shortlist)
        searches = manifest.generation.beam_size > 1 and graphs[SEARCHES[short]]
        self.usual = SEARCHES[short] if searches else (LaneKind.GREEDY, LaneKind.SHORT_GREEDY)[short]
        self._shortlist = self._read_shortlist() if short else None
        try:
            self._load(files.encoder)
            self._load(graphs[self.usual])
        except BaseException:
            self.close()  # a caller that keeps the error must not keep the sessions
            raise

    def assign(self, rows: Sequence[Row]) -> None:
        """Set each row's shortlist."""
        if self._shortlist is not None:
            for row in rows:
                row.shortlist = None if _needs_all_tokens(row) else self._shortlist.ids(row.source, row.prefix)

    def is_open_for(self, rows: Sequence[Row]) -> bool:
        return super().is_open_for(rows) and not any(row.search.suppressed for row in rows)

    def open_for(self, rows: Sequence[Row]) -> None:
        """Load what the rows' lanes need, and compile suppressed texts."""
        super().open_for(rows)
        processors = {}
        for row in rows:
            if row.search.suppressed:
                key = id(row.search), row.frame.forced
                if key not in processors:
                    processors[key] = make_processor(row, self._manifest.tokens, self.vocabulary)
                row.processor = processors[key]

    def make(self, kind: LaneKind, worker: int = 0) -> Lane:
        with self._lock:
            index = worker % len(self._places)
            place = self._places[index]
            graph = self._graphs[LaneKind.SEARCH if kind is LaneKind.WIDE else kind]
            encoder, step = self._session(self._files.encoder, index), self._session(graph, index)
            if place is not None:
                return self._make_on(place.memory, kind, worker, encoder, step)
            subset = VocabSubset(self._projection, self._manifest.tokens.end) if kind in SHORT else None
            cache = HostKVCache(encoder, step, self._manifest, self._count(kind))
            if kind in SEARCHES:
                return self._search_lane(cache, step, subset)
            return GreedyLane(Slots(cache, self._manifest, subset), self._manifest.tokens)

    def close(self) -> None:
        super().close()
        self._prefills.clear()

    def _make_on(self, memory: Memory, kind: LaneKind, worker: int, encoder: Session, step: Session) -> Lane:
        manifest = self._manifest
        if worker not in self._prefills:  # one for all lanes of a thread
            shape = memory_shape(step, manifest.decoder)
            self._prefills[worker] = Prefill(encoder, cache_lengths(manifest.limits)[1], shape, memory)
        cache = DeviceKVCache(self._prefills[worker], step, manifest, self._count(kind), memory)
        if kind in SEARCHES:
            return self._search_lane(HostMirroredCache(cache, step, memory), step)
        return DeviceGreedyLane(DeviceSlots(cache, step, manifest.tokens.start, memory), manifest.tokens, memory)

    def _search_lane(self, cache: KVCache, step: Session, subset: VocabSubset | None = None) -> SearchLane:
        width = step.output_width("log_probabilities") if subset is None else 0
        slots = SearchSlots(cache, self._manifest, width, subset)
        return SearchLane(slots, self._manifest.tokens, self.vocabulary)

    def _read_shortlist(self) -> Shortlist:
        banned = single_tokens(self._manifest.generation.suppressed_tokens)
        return read_shortlist(self._bundle.path(self._files.shortlist), len(self._projection.weights), banned)

    @cached_property
    def _projection(self) -> Projection:
        return Projection.read(self._bundle.path(self._files.projection))

    def _make_session(self, graph: str, place: SessionPlace | None) -> Session:
        if place is not None:
            place = replace(place, captures=graph in (self._files.step, self._files.search))  # others have too many shapes
        kernels = native_kernels(self._manifest.decoder.head_dim) if place is None else None
        return Session(self._bundle.path(graph), 1, self._files.saturation_free, place, kernels)


def _needs_all_tokens(row: Row) -> bool:
    search = row.search
    return search.samples and not 0 < search.sampling_topk <= MAX_CANDIDATES
