"""Loaded models that translate: the base of all, and encoder-decoders with tokenizer and graphs behind one decode engine."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import AnyTranslationManifest, TranslationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.encoding.options import Work
from triptych_serving.errors import UnavailableError, UnsupportedError
from triptych_serving.models.attender import Attender
from triptych_serving.models.decode_model import DecodeModel, DecodeModelOptions, Lanes
from triptych_serving.models.request_cost import check_characters, check_rows
from triptych_serving.models.translation.memory_plan import memory_plan
from triptych_serving.models.translation.options import DEFAULTS
from triptych_serving.models.translation.postprocess import GrowingText, Translation, assemble
from triptych_serving.models.translation.preprocess import PreparedRequest, Preprocessor
from triptych_serving.models.translation.scoring import Scorer, TranslationScore
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import Session
from triptych_serving.runtime.session_pool import SessionPool
from triptych_serving.scheduling.admission import with_queue
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.engine import Engine, run_rows
from triptych_serving.scheduling.request import Row
from triptych_serving.scheduling.wait_estimator import ExpectedCall
from triptych_serving.text.languages import describe_pair, resolve_pair
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import Steps, finish

ASSIGNED_TOGETHER = 512  # rows that get their shortlists in one step


class TranslationModel(DecodeModel[Lanes]):
    """A model that translates.

    `prepare`, `admit_steps`, `translate` and `stream` take the same arguments for the request:
        texts: what to translate.
        options: decoding options; those that are None have the model's defaults.
        source_language, target_language: any code for one of the model's languages; empty where the model has only one.
    """

    manifest: AnyTranslationManifest
    tokenizer: TranslationTokenizer
    aligns = True  # the attention of decoding tells which words belong together

    @property
    def rows(self) -> int:
        """Maximum number of rows decoded concurrently."""
        return self._engine_options.worker_count * self._engine_options.slots

    @property
    @abstractmethod
    def scorer(self) -> Scorer:
        """The scorer of given translations. Raises ServingError: there is none."""

    @abstractmethod
    def score_steps(
        self, deadline: float | None, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = ""
    ) -> Steps[Work[TranslationScore]]:
        """Prepare pairs in small steps, but first reject them if the engine would; the deadline is in monotonic seconds."""

    @abstractmethod
    def _prepare_steps(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str,
        target_language: str,
        admit: Callable[[SearchParams], None] | None = None,
    ) -> Steps[PreparedRequest]:
        """Check and tokenize in small steps. `admit` may reject the request before its texts are examined."""

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
        return filter(None, self.output_steps(prepared))

    def output_steps(self, prepared: PreparedRequest) -> Iterator[Translation | None]:
        """Convert finished rows in small steps: yields translations, and None in between."""
        return assemble(prepared.texts, self.tokenizer)

    def growing(self, prepared: PreparedRequest) -> list[GrowingText]:
        """Return the texts of a stream."""
        return [GrowingText(text, self.tokenizer, index) for index, text in enumerate(prepared.texts)]

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
        yield from self._stream(prepared.rows, self.growing(prepared)[0].advance)
        yield from self.outputs(prepared)

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


class Translator(TranslationModel[LaneFactory]):
    """An encoder-decoder."""

    manifest: TranslationManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: DecodeModelOptions) -> None:
        self.manifest = bundle.manifest_of(TranslationManifest)
        super().__init__(name, version, bundle, options)
        limits, engine = self.manifest.limits, options.engine
        tokenizer, target_tokenizer = map(bundle.path, self.manifest.tokenizers)
        self.tokenizer = TranslationTokenizer(tokenizer, limits.max_source_tokens, limits.max_target_tokens, target_tokenizer)
        self._bundle, self._options = bundle, options
        self._preprocessor = Preprocessor(self.tokenizer, self.manifest, engine.slots, self._limits)
        self._scorer: Scorer | None = None
        graphs = self.manifest.precisions[self.precision]
        self.attender = Attender(name, bundle, graphs.attend, graphs.saturation_free, engine.limits, engine.gives_way)
        self._loading = threading.Lock()
        self._closed = False
        serves_others = engine.gives_way and not engine.on_gpus  # a GPU has room for the usual lanes alone
        self._start(
            engine,
            partial(LaneFactory, bundle, self.precision, engine.slots),
            lambda: memory_plan(bundle, self.precision, engine.slots, self.tokenizer.vocabulary),
            options.eager,
            wide_workers=max(1, engine.workers // 2) if serves_others else 0,
        )

    def score_steps(
        self, deadline: float | None, pairs: Sequence[tuple[str, str]], source_language: str = "", target_language: str = ""
    ) -> Steps[Work[TranslationScore]]:
        """Prepare pairs; see TranslationModel. The first call loads the graph, which takes some 0.1 s."""
        pair = resolve_pair(self.manifest, source_language, target_language)
        check_rows("pairs", len(pairs), self._limits)
        check_characters("pairs", sum(len(source) + len(target) for source, target in pairs), self._limits)
        scorer = self.scorer
        scorer.engine.check(ExpectedCall(rows=len(pairs)), deadline)
        yield
        return (yield from scorer.prepare_steps(pairs, pair.framing))

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
        scorer = self._scorer
        return [self.engine, *([] if scorer is None else [scorer.engine]), *self.attender.engines]

    def run(self, rows: Sequence[Row]) -> None:
        """Decode rows that were made elsewhere, and wait for the last one. Raises ServingError: the call as a whole failed."""
        self.lanes.assign(rows)
        self.lanes.open_for(rows)
        run_rows(self.engine, rows)

    def describe(self) -> str:
        return f"{describe_pair(self.manifest)}, {self._resources(native_kernels(self.manifest.decoder.head_dim))}"

    def close(self, drain: bool = True) -> None:
        self.attender.close(drain)
        with self._loading:
            self._closed = True
            if self._scorer is not None:
                self._scorer.engine.close(drain)
        super().close(drain)

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
        return Scorer(session, self.tokenizer, self.manifest.tokens, engine.worker_count, limits, engine.gives_way)
