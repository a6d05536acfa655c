"""A translation model ready to serve: a bundle's tokenizer and graphs behind one decode engine."""

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from triptych_serving.bundle import Bundle
from triptych_serving.capability import capabilities_of
from triptych_serving.engine import Engine, EngineOptions
from triptych_serving.lane import GreedyLane
from triptych_serving.manifest import TranslationManifest
from triptych_serving.options import DecodingOptions, check_options
from triptych_serving.processor import usable_cpus
from triptych_serving.row import Call, Finish, Row
from triptych_serving.session import Session
from triptych_serving.text import Pieces, TextCodec
from triptych_serving.waiting import run_rows

GREEDY = DecodingOptions()


@dataclass(frozen=True)
class TranslatorOptions:
    """How a model is loaded."""

    precision: str | None = None  # None: the bundle's default
    engine: EngineOptions = field(default_factory=lambda: EngineOptions(workers=usable_cpus()))


@dataclass(frozen=True)
class Output:
    """One translated text."""

    text: str
    finish: Finish
    token_count: int  # end of sentence not included
    source_token_count: int  # end of sentence included


class Translator:
    """One version of one model. Thread-safe.

    Raises:
        BundleError: the bundle lacks the precision, or a file cannot be loaded.
    """

    def __init__(self, name: str, version: int, bundle: Bundle, options: TranslatorOptions) -> None:
        self.name, self.version = name, version
        self.labels: tuple[str, ...] = ()
        self.manifest = bundle.manifest_of(TranslationManifest)
        self.capabilities = capabilities_of(self.manifest)
        self.precision = bundle.precision(options.precision)
        graphs = self.manifest.precisions[self.precision]
        limits = self.manifest.limits
        self.codec = TextCodec(bundle.path("tokenizer.json"), limits.max_source_tokens)
        encoder, step = Session(bundle.path(graphs.encoder)), Session(bundle.path(graphs.step))
        slots = options.engine.slots
        self.engine = Engine(lambda: GreedyLane(encoder, step, self.manifest, slots), options.engine)
        self.engine.start()

    def prepare(self, texts: Sequence[str], options: DecodingOptions = GREEDY) -> list[Row]:
        """Check options, tokenize.

        Raises:
            InvalidInputError: an option is out of range, or a text empty or too long.
            UnsupportedError: an option is not available.
        """
        check_options(options, self.manifest.limits.max_target_tokens)
        max_tokens = options.max_length or self.manifest.generation.max_length
        return [Row(source, max_tokens) for source in self.codec.encode(texts)]

    def outputs(self, rows: Sequence[Row]) -> list[Output]:
        """Detokenize finished rows."""
        texts = self.codec.decode([row.tokens for row in rows])
        return [
            Output(text, row.finish or Finish.LENGTH, len(row.tokens), len(row.source))
            for text, row in zip(texts, rows, strict=True)
        ]

    def translate(self, texts: Sequence[str], options: DecodingOptions = GREEDY) -> list[Output]:
        """Translate in this process and wait; order is kept.

        Raises:
            ServingError: whatever kept the texts from being translated.
        """
        rows = self.prepare(texts, options)
        self.run(rows)
        return self.outputs(rows)

    def stream(self, text: str, options: DecodingOptions = GREEDY) -> Iterator[str | Output]:
        """Translate one text piece by piece: strings to be appended, then the whole result.

        Raises:
            ServingError: as for `translate`.
        """
        [row] = self.prepare([text], options)
        news: queue.SimpleQueue[None] = queue.SimpleQueue()
        call = Call([row], _Messenger(news), streams=True)
        self.engine.submit(call)
        pieces = Pieces()
        try:
            while not call.over:
                news.get()
                if call.error is None and (piece := pieces.advance(self.codec.decode_stable(row.tokens))):
                    yield piece
            if call.error is not None:
                raise call.error
            [output] = self.outputs([row])
            if piece := pieces.advance(output.text):
                yield piece
            yield output
        finally:
            if not call.over:
                self.engine.cancel(call)

    def run(self, rows: Sequence[Row]) -> None:
        """Decode rows and wait for the last one.

        Raises:
            ServingError: the call as a whole failed.
        """
        run_rows(self.engine, rows)

    def describe(self) -> str:
        """For the log."""
        pair = f"{'/'.join(self.manifest.source_languages)} to {'/'.join(self.manifest.target_languages)}"
        return f"{pair}, CPU, {self.precision}, caches of at most {self.engine.bytes / 1e6:,.0f} MB"

    def close(self, drain: bool = True) -> None:
        """Stop the engine."""
        self.engine.close(drain)


class _Messenger:
    """A listener that wakes a thread at every token."""

    def __init__(self, news: "queue.SimpleQueue[None]") -> None:
        self._news = news

    def on_token(self, row: Row) -> None:
        self._news.put(None)

    def on_end(self) -> None:
        self._news.put(None)
