"""The lanes of one model: sessions are loaded once, when a row first needs them, and shared by all workers."""

import threading
from collections.abc import Sequence
from functools import cached_property

from triptych_serving.bundle import Bundle
from triptych_serving.columns import Columns, Projection
from triptych_serving.constraints import Vocabulary, single_tokens
from triptych_serving.errors import UnsupportedError
from triptych_serving.lane import GreedyLane, Lane
from triptych_serving.manifest import TranslationManifest
from triptych_serving.row import Row
from triptych_serving.scheduler import Kind
from triptych_serving.searchlane import MAX_CANDIDATES, SearchLane
from triptych_serving.searchslots import SearchSlots
from triptych_serving.session import Session
from triptych_serving.shortlist import Shortlist, read_shortlist
from triptych_serving.tokenizing import read_tokenizer

SEARCHES = (Kind.SEARCH, Kind.SHORT_SEARCH)
SEARCH_SLOTS = 2  # times those of greedy lanes: a text takes several, and few texts at once are encoded in small batches


class Lanes:
    """Thread-safe.

    Args:
        bundle: where the graphs are.
        precision: which of them.
        slots: of each greedy lane.

    Raises:
        BundleError: a graph cannot be loaded.
    """

    def __init__(self, bundle: Bundle, precision: str, slots: int) -> None:
        self._bundle = bundle
        self._manifest = bundle.manifest_of(TranslationManifest)
        self._graphs = self._manifest.precisions[precision]
        self._slots = slots
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        short = bool(self._graphs.shortlist)
        self.usual = Kind.SHORT_GREEDY if short else Kind.GREEDY  # what a row without options needs
        self._shortlist = self._read_shortlist() if short else None
        self._session(self._graphs.encoder)
        self._session(self._graph(self.usual))

    def assign(self, rows: Sequence[Row]) -> None:
        """Find out which tokens each row may need."""
        if self._shortlist is not None:
            for row in rows:
                row.shortlist = None if _needs_all_tokens(row) else self._shortlist.ids(row.source, row.prefix)

    def is_open_for(self, rows: Sequence[Row]) -> bool:
        """What the rows' lanes need is loaded."""
        kinds = {Kind.of(row) for row in rows}
        return all(self._graph(kind) in self._sessions for kind in kinds) and not any(row.search.suppressed for row in rows)

    def open_for(self, rows: Sequence[Row]) -> None:
        """Load what the rows' lanes need, so that the engine's threads find it: some 0.1 s when the first such row comes.

        Raises:
            UnsupportedError: the bundle is an old one, without a search graph.
            BundleError: a graph cannot be loaded.
        """
        for kind in {Kind.of(row) for row in rows}:
            self.open(kind)
        for text in {text for row in rows for text in row.search.suppressed}:
            self._vocabulary.pattern(text)

    def open_all(self) -> list[Kind]:
        """Load what the bundle has; returns the kinds that there are.

        Raises:
            BundleError: a graph cannot be loaded.
        """
        kinds = [kind for kind in Kind if self._graph(kind)]
        for kind in kinds:
            self.open(kind)
        return kinds

    def open(self, kind: Kind) -> None:
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
            self._session(self._graph(kind))

    def make(self, kind: Kind) -> Lane:
        """One worker's lane."""
        with self._lock:
            encoder, step = self._session(self._graphs.encoder), self._session(self._graph(kind))
            tokens = self._manifest.tokens
            columns = Columns(self._projection, tokens.end) if kind in (Kind.SHORT_GREEDY, Kind.SHORT_SEARCH) else None
            if kind in SEARCHES:
                slots = SearchSlots(encoder, step, self._manifest, SEARCH_SLOTS * self._slots, columns)
                return SearchLane(slots, tokens, self._vocabulary)
            return GreedyLane(encoder, step, self._manifest, self._slots, columns)

    def _read_shortlist(self) -> Shortlist:
        banned = single_tokens(self._manifest.generation.suppressed_tokens)
        return read_shortlist(self._bundle.path(self._graphs.shortlist), len(self._projection.weights), banned)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.of(read_tokenizer(self._bundle.path(self._manifest.tokenizers[1])))

    @cached_property
    def _projection(self) -> Projection:
        return Projection.read(self._bundle.path(self._graphs.projection))

    def _graph(self, kind: Kind) -> str:
        graphs = self._graphs
        return {
            Kind.GREEDY: graphs.step,
            Kind.SEARCH: graphs.search,
            Kind.SHORT_GREEDY: graphs.short_step,
            Kind.SHORT_SEARCH: graphs.short_search,
        }[kind]

    def _session(self, graph: str) -> Session:
        with self._lock:
            if graph not in self._sessions:
                path = self._bundle.path(graph)
                self._sessions[graph] = Session(path, saturation_free=self._graphs.saturation_free)
            return self._sessions[graph]


def _needs_all_tokens(row: Row) -> bool:
    search = row.search
    return search.samples and not 0 < search.sampling_topk <= MAX_CANDIDATES
