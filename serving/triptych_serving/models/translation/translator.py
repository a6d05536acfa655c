"""A translation model ready to serve: a bundle's tokenizer and graphs behind one decode engine."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.capability import capabilities_of
from triptych_serving.bundle.languages import describe_side
from triptych_serving.bundle.manifest import FP16, TranslationManifest, runs_on
from triptych_serving.bundle.search_params import Search
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions, with_gpu_limits
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.encoding.options import Work
from triptych_serving.errors import DeviceError, UnavailableError, UnsupportedError
from triptych_serving.models.model import Watched
from triptych_serving.models.translation.memory_plan import memory_plan
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.postprocess import GrowingText, Output, Prepared, assemble
from triptych_serving.models.translation.preprocess import DEFAULTS, Preparer
from triptych_serving.models.translation.scoring import Score, Scorer
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.model_devices import Places
from triptych_serving.runtime.session import Session
from triptych_serving.runtime.session_pool import SessionPool
from triptych_serving.scheduling.admission import with_queue
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Call, Listener, Row
from triptych_serving.text.language_pair import resolve_pair
from triptych_serving.text.translation_tokenizer import TextCodec


@dataclass(frozen=True)
class TranslatorOptions:
    """How a model is loaded."""

    precision: str | None = None  # None: the bundle's default
    engine: EngineOptions = field(default_factory=lambda: EngineOptions(workers=usable_cpus()))
    eager: bool = False  # lanes of every kind are made at the start, not when the first request needs them


class Translator:
    """One version of one model. Thread-safe.

    Raises:
        BundleError: the bundle lacks the precision, or a file cannot be loaded.
        DeviceError: the precision does not run on the devices, or a device cannot be used or has no room.
    """

    def __init__(self, name: str, version: int, bundle: Bundle, options: TranslatorOptions) -> None:
        self.name, self.version = name, version
        self.labels: tuple[str, ...] = ()
        self.manifest = bundle.manifest_of(TranslationManifest)
        self.capabilities = capabilities_of(self.manifest)
        self.precision = bundle.precision(options.precision)
        limits = self.manifest.limits
        tokenizer, target_tokenizer = map(bundle.path, self.manifest.tokenizers)
        self.codec = TextCodec(tokenizer, limits.max_source_tokens, limits.max_target_tokens, target_tokenizer)
        self._bundle, self._options = bundle, options
        self._preparer = Preparer(self.codec, self.manifest, options.engine.slots)
        self._scorer: Scorer | None = None
        self._loading = threading.Lock()
        self._closed = False
        self.devices = options.engine.devices
        self._places = self._open_places()
        try:
            self.lanes = LaneFactory(
                bundle, self.precision, options.engine.slots, self._places.all if self.precision == FP16 else ()
            )
            self.engine = self._start()
        except BaseException:
            self._places.close()
            raise
        self.weight_bytes = bundle.weight_bytes(self.precision)

    def prepare(
        self,
        texts: Sequence[str],
        options: DecodingOptions = DEFAULTS,
        source_language: str = "",
        target_language: str = "",
    ) -> Prepared:
        """Check options, split texts into sentences, tokenize; what is returned can be submitted to the engine.

        Args:
            texts: what to translate.
            options: how.
            source_language: any code for one of the model's; may be empty where it has one.
            target_language: likewise.

        Raises:
            InvalidInputError: a language is none of the model's, an option is out of range, or a text empty or too long.
            UnsupportedError: the model, or its bundle, cannot do what an option asks for.
        """
        prepared = self.tokenize(texts, options, source_language, target_language)
        self.get_ready_for(prepared)
        return prepared

    def tokenize(
        self, texts: Sequence[str], options: DecodingOptions, source_language: str = "", target_language: str = ""
    ) -> Prepared:
        """The quick part of `prepare`, with its arguments; `get_ready_for` is the rest.

        Raises:
            ServingError: as for `prepare`.
        """
        return self._tokenize(texts, options, source_language, target_language)

    def tokenize_before(
        self,
        deadline: float | None,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str = "",
        target_language: str = "",
    ) -> Prepared:
        """The same, unless the engine is sure to refuse the rows: they must be done by `deadline`, monotonic seconds.

        Raises:
            ServingError: as for `prepare`, and what the engine's `submit` would raise.
        """

        def admit(search: Search) -> None:
            self.engine.check(search.greedy, len(texts), deadline)

        return self._tokenize(texts, options, source_language, target_language, admit)

    def _tokenize(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str,
        target_language: str,
        admits: Callable[[Search], None] = lambda _: None,
    ) -> Prepared:
        prepared = self._preparer.prepare(texts, options, source_language, target_language, admits)
        self.lanes.assign(prepared.rows)
        return prepared

    def is_ready_for(self, prepared: Prepared) -> bool:
        """`get_ready_for` has nothing to do."""
        return self.lanes.is_open_for(prepared.rows)

    def get_ready_for(self, prepared: Prepared) -> None:
        """Load and build what its search needs, once, so that the engine's threads find it: some tenths of a second.

        Raises:
            UnsupportedError: the model's bundle is too old for this search.
        """
        self.lanes.open_for(prepared.rows)

    def outputs(self, prepared: Prepared) -> list[Output]:
        """What the finished rows say, text by text."""
        return assemble(prepared.texts, self.codec)

    def translate(
        self,
        texts: Sequence[str],
        options: DecodingOptions = DEFAULTS,
        source_language: str = "",
        target_language: str = "",
    ) -> list[Output]:
        """Translate in this process and wait; order is kept. Arguments as for `prepare`.

        Raises:
            ServingError: whatever kept the texts from being translated.
        """
        prepared = self.prepare(texts, options, source_language, target_language)
        run_rows(self.engine, prepared.rows)
        return self.outputs(prepared)

    def stream(
        self, text: str, options: DecodingOptions = DEFAULTS, source_language: str = "", target_language: str = ""
    ) -> Iterator[str | Output]:
        """Translate one text piece by piece: strings to be appended, then the whole result. Arguments as for `prepare`.

        Raises:
            ServingError: as for `translate`.
        """
        prepared = self.prepare([text], options, source_language, target_language)
        growing = GrowingText(prepared.texts[0], self.codec)
        news: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        call = Call(prepared.rows, _Messenger(news), streams=True)
        self.engine.submit(call)
        try:
            while not call.over:
                changed = news.get()
                if changed is not None and call.error is None and (piece := growing.advance(changed)):
                    yield piece
            if call.error is not None:
                raise call.error
            if piece := growing.advance(prepared.rows[-1]):
                yield piece
            yield from self.outputs(prepared)
        finally:
            if not call.over:
                self.engine.cancel(call)

    def prepare_scores(
        self, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = ""
    ) -> Work[Score]:
        """See `score`. The first call loads the graph, which takes some tenths of a second."""
        pair = resolve_pair(self.manifest, source_language, target_language)
        return self.scorer.prepare(pairs, pair.framing)

    def score(self, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = "") -> list[Score]:
        """How likely the model finds given translations; order is kept.

        Args:
            pairs: sources, each with its translation; neither is split into sentences.
            source_language: any code for one of the model's; may be empty where it has one.
            target_language: likewise.

        Raises:
            ServingError: whatever kept the pairs from being scored.
        """
        work = self.prepare_scores(pairs, source_language, target_language)
        run_rows(self.scorer.engine, work.items, work.field)
        return work.read()

    @property
    def rows(self) -> int:
        """That are decoded at a time."""
        engine = self._options.engine
        return engine.threads * engine.slots

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes of each GPU's memory."""
        return self._places.reserved

    @property
    def scorer(self) -> Scorer:
        """Scores translations; made when it is first asked for.

        Raises:
            UnavailableError: the model is closed.
            UnsupportedError: the bundle is an old one, without a graph for it.
            BundleError: the graph cannot be loaded.
        """
        with self._loading:
            if self._closed:
                raise UnavailableError("the model is shutting down")
            if self._scorer is None:
                self._scorer = self._load_scorer()
            return self._scorer

    @property
    def engines(self) -> list[Watched]:
        """Those that work so far."""
        scorer = self._scorer
        return [self.engine] if scorer is None else [self.engine, scorer.engine]

    def run(self, rows: Sequence[Row]) -> None:
        """Decode rows that were made elsewhere, and wait for the last one.

        Raises:
            ServingError: the call as a whole failed.
        """
        self.lanes.assign(rows)
        self.lanes.open_for(rows)
        run_rows(self.engine, rows)

    def load(self) -> tuple[int, int]:
        """Texts that run, texts that wait."""
        loads = [engine.load() for engine in self.engines]
        return sum(running for running, _ in loads), sum(waiting for _, waiting in loads)

    def describe(self) -> str:
        """For the log."""
        pair = f"{describe_side(self.manifest.source_languages)} to {describe_side(self.manifest.target_languages)}"
        engine = self._options.engine
        where = ", ".join(map(str, self.devices)) if engine.on_gpus else "CPU"
        return (
            f"{pair}, {where}, {self.precision}, threads: {engine.threads}, rows of each: {engine.slots}, "
            f"weights of {self.weight_bytes / 1e6:,.0f} MB, caches of up to {self.engine.bytes / 1e6:,.0f} MB"
        )

    def close(self, drain: bool = True) -> None:
        """Stop the engines, and give back what they had of the devices."""
        self.engine.close(drain)
        with self._loading:
            self._closed = True
            if self._scorer is not None:
                self._scorer.engine.close(drain)
            self.lanes.close()
            self._places.close()

    def _start(self) -> DecodeEngine:
        options = self._options
        engine = DecodeEngine(self.lanes.make, with_gpu_limits(options.engine), first=self.lanes.usual)
        try:
            engine.start(self.lanes.open_all() if options.eager else ())
        except BaseException:
            engine.close(drain=False)
            self.lanes.close()
            raise
        return engine

    def _open_places(self) -> Places:
        engine = self._options.engine
        foreign = [device for device in self.devices if device.kind not in runs_on(self.precision)]
        if foreign:
            raise DeviceError(f"precision {self.precision} runs on the CPU only, not on {', '.join(map(str, foreign))}")
        plan: Mapping[str, int] = {}
        if engine.on_gpus:
            plan = memory_plan(self._bundle, self.precision, engine.slots, self.codec.vocabulary)
        return Places(self.devices, engine.budgets, f"model {self.name} version {self.version}", plan)

    def _load_scorer(self) -> Scorer:
        graphs = self.manifest.precisions[self.precision]
        if not graphs.score:
            raise UnsupportedError(f"the bundle of model {self.name!r} cannot score translations; export the checkpoint again")
        engine = self._options.engine
        limits = with_queue(BatchLimits(), engine.limits)
        return Scorer(self._score_sessions(), self.codec, self.manifest.tokens, engine.threads, limits, engine.gives_way)

    def _score_sessions(self) -> Session | SessionPool:
        graphs = self.manifest.precisions[self.precision]
        path = self._bundle.path(graphs.score)
        if not self._options.engine.on_gpus:  # any number of threads run one session
            return Session(path, saturation_free=graphs.saturation_free)
        return SessionPool([Session(path, place=self._places.open(device)) for device in self.devices])


class _Messenger(Listener):
    """A listener that wakes a thread at every token."""

    def __init__(self, news: "queue.SimpleQueue[Row | None]") -> None:
        self._news = news

    def on_token(self, row: Row) -> None:
        self._news.put(row)

    def on_end(self) -> None:
        self._news.put(None)
