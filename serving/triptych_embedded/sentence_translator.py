"""Asks for an engine in this process."""

import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded.decoding import decoding_values, given
from triptych_embedded.identity import Identity, digest
from triptych_embedded.models import as_backend_errors, open_registry
from triptych_embedded.request import FIELD, BackendError, Request
from triptych_embedded.translating import Outcome
from triptych_serving.bundle.manifest import FILE_NAME, TRANSLATION, TranslationManifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.errors import InvalidInputError, ServingError, UnavailableError
from triptych_serving.models.translation.options import DecodingOptions, SplitSentences
from triptych_serving.models.translation.postprocess import PreparedRequest, PreparedText
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.repository.repository import VersionFolder
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_serving.scheduling.admission import QueueLimits, with_queue
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.request import Call, Finish, Listener, Row
from triptych_serving.services.documents.alignment import sentence_translation_of
from triptych_serving.text.languages import SOURCE, TARGET, choose_language
from triptych_text.languages import UNDETERMINED

WAITING_ROWS = 8  # for each that runs: they wait in the engine's queue while this thread reads and writes documents
TOGETHER = 8  # asks in a call of the engine, whose threads have some work with every call
ENOUGH_ROWS = 2  # for each that runs: with so many outcomes they are looked at, as a few at a time cost more
TAIL = 4  # where fewer asks are left than that, one in so many is enough
SWITCH_SECONDS = 0.0001  # an engine's thread waits no longer for this one between two steps
# The queue is this job's own, and holds a window at most; with many CPUs that is more than a server lets wait.
BOUNDLESS = QueueLimits(waiting_rows=sys.maxsize, waiting_tokens=sys.maxsize, waiting_calls=sys.maxsize)


class EmbeddedTranslating:
    """Loads the model when entered.

    Args:
        request: which model, and how it decodes.
        repository: where models lie.
        workers: threads of the engine; all CPUs by default.
    """

    def __init__(self, request: Request, repository: Path, workers: int | None = None) -> None:
        self._request, self._repository = request, repository
        self._engine = EngineOptions(workers=workers or usable_cpus(), limits=with_queue(DecodeLimits(), BOUNDLESS))

    def __enter__(self) -> Self:
        request = self._request
        wish = ModelSelector(request.model, "", request.source_language, request.target_language)
        with as_backend_errors():
            self._registry: Registry = open_registry(self._repository, request, TRANSLATION, self._engine)
            self.translator = self._registry.find(wish)
            self._identity = identity_of(self._entry, self.translator.precision, self.translator.manifest, request)
        self._asking = EngineAsking(self.translator, request, self.translator.rows)
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        return self

    def __exit__(self, *details: object) -> None:
        sys.setswitchinterval(self._switch_seconds)
        self._registry.close(drain=False)

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def window(self) -> int:
        return self._asking.window

    def submit(self, asks: Sequence[SentenceRequest]) -> None:
        self._asking.submit(asks)

    def take(self, patience_seconds: float) -> Sequence[Outcome]:
        return self._asking.take(patience_seconds)

    @property
    def _entry(self) -> VersionFolder:
        return self._registry.default(self.translator.name, str(self.translator.version)).entry


class EngineAsking:
    """A few asks of about one length are a call: they end soon after each other, and their places are filled again at once.

    Any number may be submitted: the engine gets a window of them, the others wait here.

    Args:
        translator: its engine works for nobody else.
        request: how to decode.
        running: rows that the engine works on at once.
    """

    def __init__(self, translator: Translator, request: Request, running: int) -> None:
        self._translator = translator
        self._languages = request.source_language, request.target_language
        self._decoding = request.decoding
        self._waiting: deque[SentenceRequest] = deque()
        self._suspects: set[SentenceRequest] = set()  # failed in company; alone they tell who it was
        self._busy = 0  # the engine has them, or has ended them since the last `take`
        self._ended: deque[_Asked] = deque()
        self._refused: list[Outcome] = []
        self._news = threading.Event()
        self._most = running * ENOUGH_ROWS
        self._left = 0  # submitted and not taken
        self.window = running * (1 + WAITING_ROWS)

    def submit(self, asks: Sequence[SentenceRequest]) -> None:
        """See Translating."""
        self._left += len(asks)
        self._waiting.extend(sorted(asks, key=_order))
        self._feed()

    def take(self, patience_seconds: float) -> list[Outcome]:
        """See Translating."""
        if not self._refused and not self._is_enough:
            self._news.clear()
            if not self._is_enough:  # still: none has ended since
                self._news.wait(patience_seconds)
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        self._busy -= sum(len(one.asks) for one in ended)
        failed = [one for one in ended if one.call.error is not None]
        self._separate([one for one in failed if len(one.asks) > 1])
        self._feed()
        outcomes, self._refused = self._refused, []
        outcomes += self._read([one for one in ended if one.call.error is None])
        outcomes += [(one.asks[0], _refusal(one.call.error)) for one in failed if len(one.asks) == 1]
        self._left -= len(outcomes)
        return outcomes

    def _feed(self) -> None:
        """Fill the window; a few at a time cost more."""
        while self._waiting and (room := self.window - self._busy) >= min(self._most, len(self._waiting)):
            asks = [self._waiting.popleft()]
            while self._waiting and len(asks) < room and self._waiting[0].aligned == asks[0].aligned:
                asks.append(self._waiting.popleft())
            self._submit(asks, asks[0].aligned)

    def _submit(self, asks: list[SentenceRequest], aligned: bool) -> None:
        texts = self._prepare(asks, aligned)
        with as_backend_errors():
            for part in self._parts(asks):
                self._translator.engine.submit(_Asked(asks[part], texts[part], self).call)
                self._busy += len(asks[part])

    def _parts(self, asks: Sequence[SentenceRequest]) -> Iterator[slice]:
        """What is a call. Suspects are the first of all."""
        start = 0
        while start < len(asks):
            part = slice(start, start + (1 if asks[start] in self._suspects else TOGETHER))
            yield part
            start = part.stop

    def _separate(self, failed: "list[_Asked]") -> None:
        """One of them may be the reason why all failed."""
        for one in failed:
            _refusal(one.call.error)  # raises where asking again is in vain
            self._suspects.update(one.asks)
            self._waiting.extendleft(one.asks)

    def _prepare(self, asks: list[SentenceRequest], aligned: bool) -> Sequence[PreparedText]:
        """Asks that the model cannot take leave the list."""
        while asks:
            texts = [ask.text for ask in asks]
            try:
                with _as_backend_errors_but_inputs():
                    prepared = self._translator.prepare(texts, self._options(asks, aligned), *self._languages)
                    self._translator.load_graphs_for(prepared)
                    return prepared.texts
            except InvalidInputError as error:
                index = _index(error)
                self._refused.append((asks.pop(index), Refusal(error.problem)))
        return ()

    def _options(self, asks: Sequence[SentenceRequest], aligned: bool) -> DecodingOptions:
        return DecodingOptions(**decoding_values(self._decoding, asks, aligned), split_sentences=SplitSentences.OFF)

    def _read(self, asked: "list[_Asked]") -> list[Outcome]:
        both = [pair for one in asked for pair in zip(one.asks, one.texts, strict=True)]
        aligned = [(ask, text) for ask, text in both if ask.aligned]
        outputs = self._translator.outputs(PreparedRequest(tuple(text for _, text in aligned))) if aligned else ()
        outcomes: list[Outcome] = [
            (ask, sentence_translation_of(output)) for (ask, _), output in zip(aligned, outputs, strict=True)
        ]
        return outcomes + self._decode([(ask, text) for ask, text in both if not ask.aligned])

    def _decode(self, asked: list[tuple[SentenceRequest, PreparedText]]) -> list[Outcome]:
        """The best translation and nothing more. Each ask is one sentence."""
        rows = [text.rows[0] for _, text in asked]
        texts = self._translator.tokenizer.decode([row.shown(row.hypotheses[0].tokens) for row in rows])
        return [
            (ask, SentenceTranslation(text, None, row.hypotheses[0].finish is Finish.LENGTH))
            for (ask, _), row, text in zip(asked, rows, texts, strict=True)
        ]

    def ended(self, asked: "_Asked") -> None:
        """In a thread of the engine's."""
        self._ended.append(asked)
        if self._is_enough:
            self._news.set()

    @property
    def _is_enough(self) -> bool:
        return len(self._ended) * TOGETHER >= min(self._most, max(1, self._left // TAIL))


class _Asked(Listener):
    """Asks on their way."""

    __slots__ = ("asking", "asks", "call", "texts")

    def __init__(self, asks: Sequence[SentenceRequest], texts: Sequence[PreparedText], asking: EngineAsking) -> None:
        self.asks, self.texts, self.asking = asks, texts, asking
        self.call: Call[Row] = Call([row for text in texts for row in text.rows], self)

    def on_end(self) -> None:
        self.asking.ended(self)


@contextmanager
def _as_backend_errors_but_inputs() -> Iterator[None]:
    """Errors of the request as a whole become BackendError; those of one text stay what they are."""
    try:
        yield
    except InvalidInputError as error:
        if FIELD.fullmatch(error.field):
            raise
        raise BackendError(str(error)) from error
    except ServingError as error:
        raise BackendError(str(error)) from error


def _index(error: InvalidInputError) -> int:
    match = FIELD.fullmatch(error.field)
    assert match is not None
    return int(match[1])


def identity_of(entry: VersionFolder, precision: str, manifest: TranslationManifest, request: Request) -> Identity:
    """What a model answers when it is asked so.

    Args:
        entry: where it lies.
        precision: of its graphs.
        manifest: its own.
        request: languages, and how it decodes.

    Raises:
        InvalidInputError: a language is none of the model's, or missing where it has several.
    """
    languages = (
        choose_language(request.source_language, manifest.source_languages, SOURCE),
        choose_language(request.target_language, manifest.target_languages, TARGET),
    )
    asked = request.source_language, request.target_language
    source, target = (own if own != UNDETERMINED else code for own, code in zip(languages, asked, strict=True))
    return Identity(
        entry.name,
        str(entry.version),
        precision,
        digest((entry.folder / FILE_NAME).read_bytes()),
        source,
        target,
        given(request.decoding),
    )


def _refusal(error: ServingError | None) -> Refusal:
    """The runtime failed at one row, which was tried alone too.

    Raises:
        BackendError: the engine works no more.
    """
    if isinstance(error, UnavailableError):
        raise BackendError(str(error)) from error
    return Refusal(str(error))


def _order(ask: SentenceRequest) -> tuple[bool, int]:
    """Rows of about one length are encoded together: less of it is padding."""
    return ask.aligned, len(ask.text)
