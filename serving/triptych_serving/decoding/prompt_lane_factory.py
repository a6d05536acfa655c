"""Makes the lanes of one decoder-only model."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import (
    DecoderShape,
    Generation,
    Limits,
    SpecialTokens,
    TextGenerationManifest,
)
from triptych_serving.decoding.lane import Lane
from triptych_serving.decoding.lane_factory import SEARCH_SLOTS
from triptych_serving.decoding.prompt_cache import PrefixCache, PromptKVCache, PromptReader
from triptych_serving.decoding.prompt_lanes import PromptGreedyLane, PromptSearchLane
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Row
from triptych_serving.text.tokenizers import read_tokenizer
from triptych_serving.text.vocabulary import Vocabulary

NONE = -1  # as an id: there is no such token
FLOAT_BYTES = 4


@dataclass(frozen=True)
class PromptSpec:
    """A decoder-only model as slots see it: a row's source is one token, its target the whole context."""

    tokens: SpecialTokens
    limits: Limits
    generation: Generation
    shape: DecoderShape

    @classmethod
    def of(cls, manifest: TextGenerationManifest, context: int) -> "PromptSpec":
        """Describe a model that is served with a context of this many tokens."""
        end, *others = manifest.tokens.ends or (NONE,)
        return cls(
            SpecialTokens(manifest.tokens.pad, NONE, end, tuple(others)),
            Limits(1, context),
            manifest.generation,
            manifest.decoder,
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of the caches of one row."""
        return 2 * FLOAT_BYTES * self.shape.layers * self.shape.heads * self.shape.head_dim * self.limits.max_target_tokens


@dataclass(frozen=True)
class PromptOptions:
    """How a decoder-only model is loaded.

    Args:
        context: tokens of prompt and output that the caches have room for.
        slots: of each greedy lane.
        threads: inside one run of a graph.
        prefix_bytes: of the prefix cache.
    """

    context: int
    slots: int
    threads: int
    prefix_bytes: int


class PromptLaneFactory:
    """Thread-safe. The greedy step graph is loaded at once, as it reads the prompts of all lanes.

    Args:
        bundle: contains the graphs.
        precision: of the graphs.
        options: sizes.

    Raises:
        BundleError: a graph cannot be loaded.
    """

    def __init__(self, bundle: Bundle, precision: str, options: PromptOptions) -> None:
        self._bundle, self._options = bundle, options
        self._manifest = bundle.manifest_of(TextGenerationManifest)
        self._graphs = self._manifest.precisions[precision]
        self.spec = PromptSpec.of(self._manifest, options.context)
        self.prefixes = PrefixCache(options.prefix_bytes)
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}  # by file name
        self._lanes: dict[int, dict[LaneKind, Lane]] = {}  # by worker, whose thread alone uses them
        self._session(self._graphs.step)

    def is_open_for(self, rows: Sequence[Row]) -> bool:
        """Tell whether `open_for` has nothing to do."""
        return all(row.search.greedy for row in rows) or self._graphs.search in self._sessions

    def open_for(self, rows: Sequence[Row]) -> None:
        """Load what the rows' lanes need before the engine does.

        Raises:
            BundleError: a graph cannot be loaded.
        """
        for kind in {LaneKind.of(row) for row in rows}:
            self.open(kind)

    def open(self, kind: LaneKind) -> None:
        """Load what lanes of this kind need.

        Raises:
            BundleError: a graph cannot be loaded.
        """
        with self._lock:
            if kind is LaneKind.SEARCH:
                _ = self.vocabulary
                self._session(self._graphs.search)

    def open_all(self) -> list[LaneKind]:
        """Load all graphs of the lanes; return the kinds of lanes that there are.

        Raises:
            BundleError: a graph cannot be loaded.
        """
        kinds = [LaneKind.GREEDY, LaneKind.SEARCH]
        for kind in kinds:
            self.open(kind)
        return kinds

    def make(self, kind: LaneKind, worker: int = 0) -> Lane:
        """Make a worker's lane over graphs that are loaded."""
        spec, greedy = self.spec, kind is LaneKind.GREEDY
        with self._lock:
            reader = self._session(self._graphs.step)
            step = reader if greedy else self._session(self._graphs.search)
        count = self._options.slots * (1 if greedy else SEARCH_SLOTS)
        cache = PromptKVCache(reader, step, spec.shape, self._options.context, count)
        lanes = self._lanes.setdefault(worker, {})
        prompts = PromptReader(cache, self.prefixes, lambda: any(lane.news for lane in lanes.values()))
        if greedy:
            lanes[kind] = PromptGreedyLane(Slots(cache, spec), prompts, spec.tokens)
        else:
            slots = SearchSlots(cache, spec, step.output_width("log_probabilities"))
            lanes[kind] = PromptSearchLane(slots, prompts, spec.tokens, self.vocabulary)
        return lanes[kind]

    def close(self) -> None:
        """Drop the sessions and their memory. After it no lane may be made or used."""
        with self._lock:
            self._sessions.clear()
            self._lanes.clear()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Bytes of each token."""
        return Vocabulary.of(read_tokenizer(self._tokenizer_path))

    @property
    def _tokenizer_path(self) -> Path:
        return self._bundle.path("tokenizer.json")

    def _session(self, graph: str) -> Session:
        with self._lock:
            if graph not in self._sessions:
                path, free = self._bundle.path(graph), self._graphs.saturation_free
                self._sessions[graph] = Session(path, self._options.threads, saturation_free=free)
            return self._sessions[graph]
