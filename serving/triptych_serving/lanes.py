"""The lanes of one model: sessions are loaded once and shared by all workers."""

import threading

from triptych_serving.bundle import Bundle
from triptych_serving.constraints import Vocabulary
from triptych_serving.errors import UnsupportedError
from triptych_serving.lane import GreedyLane, Lane
from triptych_serving.manifest import TranslationManifest
from triptych_serving.scheduler import Kind
from triptych_serving.searchlane import SearchLane
from triptych_serving.session import Session
from triptych_serving.tokenizing import read_tokenizer


class Lanes:
    """Thread-safe.

    Args:
        bundle: where the graphs are.
        precision: which of them.
        slots: of each lane.

    Raises:
        BundleError: a graph cannot be loaded.
    """

    def __init__(self, bundle: Bundle, precision: str, slots: int) -> None:
        self._bundle = bundle
        self._manifest = bundle.manifest_of(TranslationManifest)
        self._graphs = self._manifest.precisions[precision]
        self._slots = slots
        self._encoder, self._step = self._load(self._graphs.encoder), self._load(self._graphs.step)
        self._search: Session | None = None
        self._vocabulary: Vocabulary | None = None
        self._loading = threading.Lock()

    def open_search(self) -> None:
        """Load what a search needs and greedy decoding does not: some 0.1 s, once.

        Raises:
            UnsupportedError: the bundle is an old one, without a search graph.
            BundleError: the graph cannot be loaded.
        """
        if not self._graphs.search:
            raise UnsupportedError("this bundle decodes greedily only; export the checkpoint again for other searches")
        with self._loading:
            if self._search is None:
                self._vocabulary = Vocabulary.of(read_tokenizer(self._bundle.path("tokenizer.json")))
                self._search = self._load(self._graphs.search)

    def make(self, kind: Kind) -> Lane:
        """One worker's lane."""
        if kind is Kind.GREEDY:
            return GreedyLane(self._encoder, self._step, self._manifest, self._slots)
        self.open_search()
        assert self._search is not None
        assert self._vocabulary is not None
        return SearchLane(self._encoder, self._search, self._manifest, self._vocabulary, self._slots)

    def _load(self, graph: str) -> Session:
        return Session(self._bundle.path(graph), saturation_free=self._graphs.saturation_free)
