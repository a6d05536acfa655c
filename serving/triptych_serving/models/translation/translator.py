"""A loaded translation model: a bundle's tokenizer and graphs behind one decode engine."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16, INT8, TranslationManifest, runs_on
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions, with_gpu_limits
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.encoding.options import Work
from triptych_serving.errors import DeviceError, UnavailableError, UnsupportedError
from triptych_serving.models.attender import Attender
from triptych_serving.models.capabilities import capabilities_of
from triptych_serving.models.request_cost import check_characters, check_rows
from triptych_serving.models.translation.memory_plan import memory_plan
from triptych_serving.models.translation.options import DEFAULTS, DecodingOptions
from triptych_serving.models.translation.postprocess import (
    GrowingText,
    PreparedRequest,
    Translation,
    assemble,
    assemble_steps,
)
from triptych_serving.models.translation.preprocess import Preprocessor
from triptych_serving.models.translation.scoring import Scorer, TranslationScore
from triptych_serving.runtime.cpu_info import integer_extension, usable_cpus
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.model_devices import ModelDevices
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import Session
from triptych_serving.runtime.session_pool import SessionPool
from triptych_serving.scheduling.admission import with_queue
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.engine import Engine, run_rows
from triptych_serving.scheduling.request import Call, Listener, Row
from triptych_serving.scheduling.wait_estimator import ExpectedCall
from triptych_serving.text.languages import describe_pair, resolve_pair
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import Steps, finish

ASSIGNED_TOGETHER = 512  # rows that get their shortlists in one step


@dataclass(frozen=True)
class TranslatorOptions:
    """Options for loading translation models."""

    precision: str | None = None  # None: the bundle's default
    engine: EngineOptions = field(default_factory=lambda: EngineOptions(workers=usable_cpus()))
    eager: bool = False  # create lanes of every kind at the start, not when the first request needs them
    # Of models that continue texts:
    max_context: int = 8_192  # tokens of prompt and output; the caches have room for them
    prefix_cache_bytes: int = 256 << 20  # keys and values of prompts that are kept; 0: none


class Translator:
    """One version of one model. Thread-safe.

    `prepare`, `admit_steps`, `translate` and `stream` take the same arguments for the request:
        texts: what to translate.
        options: decoding options; those that are None have the model's defaults.
        source_language, target_language: any code for one of the model's languages; empty where the model has only one.

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
        self.tokenizer = TranslationTokenizer(tokenizer, limits.max_source_tokens, limits.max_target_tokens, target_tokenizer)
        self._bundle, self._options = bundle, options
        self._limits = options.engine.limits
        self._preprocessor = Preprocessor(self.tokenizer, self.manifest, options.engine.slots, self._limits)
        self._scorer: Scorer | None = None
        graphs, engine = self.manifest.precisions[self.precision], options.engine
        self.attender = Attender(name, bundle, graphs.attend, graphs.saturation_free, engine.limits, engine.gives_way)
        self._loading = threading.Lock()
        self._closed = False
        self.devices = options.engine.devices
        self._model_devices = self._open_devices()
        try:
            places = self._model_devices.all if self.precision == FP16 else ()
            self.lanes = LaneFactory(bundle, self.precision, options.engine.slots, places)
            self.engine = self._start()
        except BaseException:
            self._model_devices.close()
            raise
        self.weight_bytes = bundle.weight_bytes(self.precision)

    def prepare(
        self,
        texts: Sequence[str],
        options: DecodingOptions = DEFAULTS,
        source_language: str = "",
        target_language: str = "",
    ) -> PreparedRequest:
        """Check options, split texts into sentences and tokenize. The rows can run once `lanes` is open for them.

        Raises:
            InvalidInputError: a language is not one of the model's, an option is out of range, or a text empty or too long.
            UnsupportedError: the model does not support an option.
        """
        return finish(self._prepare_steps(texts, options, source_language, target_language))

    def admit_steps(
        self,
        deadline: float | None,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str = "",
        target_language: str = "",
    ) -> Steps[PreparedRequest]:
        """Prepare a request in small steps, but first reject it if the engine would.

        The deadline is in monotonic seconds.

        Raises:
            ServingError: as for `prepare` and for the engine's `submit`.
        """

        def check(search: SearchParams) -> None:
            self.engine.check(ExpectedCall(rows=len(texts), greedy=search.greedy), deadline)

        return self._prepare_steps(texts, options, source_language, target_language, check)

    def outputs(self, prepared: PreparedRequest) -> Iterator[Translation]:
        """Convert finished rows to translations, one for each text."""
        return assemble(prepared.texts, self.tokenizer)

    def output_steps(self, prepared: PreparedRequest) -> Iterator[Translation | None]:
        """Convert finished rows in small steps: yields translations, and None in between."""
        return assemble_steps(prepared.texts, self.tokenizer)

    def translate(
        self,
        texts: Sequence[str],
        options: DecodingOptions = DEFAULTS,
        source_language: str = "",
        target_language: str = "",
    ) -> list[Translation]:
        """Translate in this process and wait; order is kept.

        Raises:
            ServingError: as for `prepare`; or the engine rejected the request, or the runtime failed.
        """
        prepared = self.prepare(texts, options, source_language, target_language)
        self.lanes.open_for(prepared.rows)
        run_rows(self.engine, prepared.rows)
        return list(self.outputs(prepared))

    def stream(
        self, text: str, options: DecodingOptions = DEFAULTS, source_language: str = "", target_language: str = ""
    ) -> Iterator[str | Translation]:
        """Translate one text piece by piece: yields strings to append, then the whole result.

        Raises:
            ServingError: as for `translate`.
        """
        prepared = self.prepare([text], options, source_language, target_language)
        self.lanes.open_for(prepared.rows)
        growing = GrowingText(prepared.texts[0], self.tokenizer)
        changes: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        call = Call(prepared.rows, ChangeListener(changes), streams=True)
        self.engine.submit(call)
        try:
            while not call.over:
                changed = changes.get()
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

    def score_steps(
        self, deadline: float | None, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = ""
    ) -> Steps[Work[TranslationScore]]:
        """Prepare pairs in small steps, but first reject them if the engine would; the deadline is in monotonic seconds.

        The first call loads the graph, which takes some 0.1 s.
        """
        pair = resolve_pair(self.manifest, source_language, target_language)
        check_rows("pairs", len(pairs), self._limits)
        check_characters("pairs", sum(len(source) + len(target) for source, target in pairs), self._limits)
        scorer = self.scorer
        scorer.engine.check(ExpectedCall(rows=len(pairs)), deadline)
        yield
        return (yield from scorer.prepare_steps(pairs, pair.framing))

    def score(
        self, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = ""
    ) -> list[TranslationScore]:
        """Compute the probability of given translations; order is kept.

        Args:
            pairs: sources, each with its translation; neither is split into sentences.
            source_language: any code for one of the model's languages; empty where the model has only one.
            target_language: likewise.

        Raises:
            ServingError: a pair is not acceptable, the bundle has no graph for scores, or the runtime failed.
        """
        work = finish(self.score_steps(None, pairs, source_language, target_language))
        run_rows(self.scorer.engine, work.items, work.field)
        return list(work.read())

    @property
    def rows(self) -> int:
        """Maximum number of rows decoded concurrently."""
        engine = self._options.engine
        return engine.threads * engine.slots

    @property
    def reserved(self) -> Mapping[Device, int]:
        """Bytes reserved on each GPU."""
        return self._model_devices.reserved

    @property
    def scorer(self) -> Scorer:
        """The scorer, created at the first use.

        Raises:
            UnavailableError: the model is closed.
            UnsupportedError: the bundle is an old one, without a graph for scores.
            BundleError: the graph cannot be loaded.
        """
        with self._loading:
            if self._closed:
                raise UnavailableError("the model is shutting down")
            if self._scorer is None:
                self._scorer = self._load_scorer()
            return self._scorer

    @property
    def engines(self) -> list[Engine[Any]]:
        """The engines created so far."""
        scorer = self._scorer
        return [self.engine, *([] if scorer is None else [scorer.engine]), *self.attender.engines]

    def run(self, rows: Sequence[Row]) -> None:
        """Decode rows that were made elsewhere, and wait for the last one. Raises ServingError: the call as a whole failed."""
        self.lanes.assign(rows)
        self.lanes.open_for(rows)
        run_rows(self.engine, rows)

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting texts."""
        loads = [engine.load() for engine in self.engines]
        return sum(running for running, _ in loads), sum(waiting for _, waiting in loads)

    def describe(self) -> str:
        """Describe the model for the log."""
        engine = self._options.engine
        where = ", ".join(map(str, self.devices)) if engine.on_gpus else "CPU"
        by = f" by {integer_extension()}" if self.precision.startswith(INT8) and integer_extension() else ""
        if not engine.on_gpus and native_kernels(self.manifest.decoder.head_dim):
            by += ", native kernels"
        return (
            f"{describe_pair(self.manifest)}, {where}, {self.precision}{by}, {engine.threads} threads x {engine.slots} rows, "
            f"weights {self.weight_bytes / 1e6:,.0f} MB, caches up to {self.engine.bytes / 1e6:,.0f} MB"
        )

    def close(self, drain: bool = True) -> None:
        """Stop the engines and free what they hold of the devices: with `drain`, after all accepted requests."""
        self.engine.close(drain)
        self.attender.close(drain)
        with self._loading:
            self._closed = True
            if self._scorer is not None:
                self._scorer.engine.close(drain)
            self.lanes.close()
            self._model_devices.close()

    def _prepare_steps(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str,
        target_language: str,
        admit: Callable[[SearchParams], None] | None = None,
    ) -> Steps[PreparedRequest]:
        prepared = yield from self._preprocessor.prepare_steps(texts, options, source_language, target_language, admit)
        for start in range(0, len(prepared.rows), ASSIGNED_TOGETHER):
            self.lanes.assign(prepared.rows[start : start + ASSIGNED_TOGETHER])
            yield
        return prepared

    def _start(self) -> DecodeEngine:
        options = self._options
        serves_others = options.engine.gives_way and not options.engine.on_gpus  # a GPU has room for the usual lanes alone
        wide = max(1, options.engine.workers // 2) if serves_others else 0
        engine = DecodeEngine(self.lanes.make, with_gpu_limits(options.engine), first=self.lanes.usual, wide_workers=wide)
        try:
            engine.start(self.lanes.open_all() if options.eager else ())
        except BaseException:
            engine.close(drain=False)
            self.lanes.close()
            raise
        return engine

    def _open_devices(self) -> ModelDevices:
        engine = self._options.engine
        foreign = [device for device in self.devices if device.kind not in runs_on(self.precision)]
        if foreign:
            raise DeviceError(f"precision {self.precision} runs on the CPU only, not on {', '.join(map(str, foreign))}")
        plan: Mapping[str, int] = {}
        if engine.on_gpus:
            plan = memory_plan(self._bundle, self.precision, engine.slots, self.tokenizer.vocabulary)
        return ModelDevices(self.devices, engine.budgets, f"model {self.name} version {self.version}", plan)

    def _load_scorer(self) -> Scorer:
        graphs, engine = self.manifest.precisions[self.precision], self._options.engine
        if not graphs.score:
            remedy = "recurrent models have no scores" if self.manifest.decoder.state_vectors else "export the checkpoint again"
            raise UnsupportedError(f"the bundle of model {self.name!r} cannot score translations; {remedy}")
        path = self._bundle.path(graphs.score)
        if engine.on_gpus:
            session: Session | SessionPool = SessionPool(
                [Session(path, place=self._model_devices.open(device)) for device in self.devices]
            )
        else:  # any number of threads run one session
            session = Session(path, saturation_free=graphs.saturation_free)
        limits = with_queue(BatchLimits(), engine.limits)
        return Scorer(session, self.tokenizer, self.manifest.tokens, engine.threads, limits, engine.gives_way)


class ChangeListener(Listener):
    """Puts each row with a new token into a queue, and None at the end."""

    def __init__(self, changes: "queue.SimpleQueue[Row | None]") -> None:
        self._changes = changes

    def on_token(self, row: Row) -> None:
        self._changes.put(row)

    def on_end(self) -> None:
        self._changes.put(None)
