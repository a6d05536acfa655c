"""Translate sentences of documents with an engine in this process."""

import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded.models import backend_errors, engine_options, open_registry
from triptych_embedded.request import BackendError, InputError, TranslationRequest
from triptych_embedded.sentences import SentenceOutcome, TranslatorIdentity, chosen_options, digest, sentence_options
from triptych_serving.bundle.manifest import FILE_NAME, TRANSLATION
from triptych_serving.errors import ServingError, UnavailableError
from triptych_serving.models.translation.preprocess import PreparedRequest, PreparedText
from triptych_serving.models.translation.translator import TranslationModel
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.repository.repository import VersionFolder
from triptych_serving.scheduling.request import Call, Finish, Listener, Row
from triptych_serving.services.documents.alignment import sentence_translation_of
from triptych_serving.text.languages import SOURCE, TARGET, LanguagePairs, choose_language
from triptych_text.languages import UNDETERMINED

WAITING_ROWS = 8  # per running row: they wait in the engine's queue while this thread reads and writes documents
CALL_SENTENCES = 8  # sentences per call of the engine, whose threads have some work with every call
ENOUGH_ROWS = 2  # per running row: this many outcomes are handled together, as a few at a time cost more
TAIL = 4  # of the last sentences, one in this many ended ones is enough
SWITCH_SECONDS = 0.0001  # a thread of the engine waits no longer for this one between two steps


@contextmanager
def open_sentence_translator(request: TranslationRequest, workers: int | None = None) -> "Iterator[EngineSentenceTranslator]":
    """Load the model and translate sentences with it; unload it afterwards.

    Args:
        request: which model, and how it decodes.
        workers: threads of the engine; by default all CPUs.

    Raises:
        BackendError: the model cannot be loaded, or does not translate these languages.
    """
    with open_registry(request, TRANSLATION, engine_options(workers)) as registry:
        with backend_errors():
            languages = request.source_language, request.target_language
            translator = registry.find(ModelSelector(request.model, request.model_version, *languages))
            entry = registry.default(translator.name, str(translator.version)).entry
            identity = identity_of(entry, translator.precision, translator.manifest, request)
        switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            yield EngineSentenceTranslator(translator, request, identity)
        finally:
            sys.setswitchinterval(switch_seconds)


class EngineSentenceTranslator:
    """A SentenceTranslator with an engine of its own.

    A call has a few sentences of similar length: they end soon after each other, and their slots are filled again at once.
    Any number of sentences may be submitted: the engine gets a window of them, the others wait here.

    Args:
        translator: its engine must have no other users.
        request: how to decode.
        identity: what the translations depend on.
    """

    def __init__(self, translator: TranslationModel[Any], request: TranslationRequest, identity: TranslatorIdentity) -> None:
        self.translator, self.identity = translator, identity
        self._languages = request.source_language, request.target_language
        self._decoding = request.decoding
        self._waiting: deque[SentenceRequest] = deque()
        self._suspects: set[SentenceRequest] = set()  # failed in a call with others; alone they show which one is the cause
        self._busy = 0  # in the engine, or ended since the last `take`
        self._ended: deque[_SentenceCall] = deque()
        self._refused: list[SentenceOutcome] = []
        self._wake_up = threading.Event()
        self._most = translator.rows * ENOUGH_ROWS
        self._left = 0  # submitted and not taken
        self.window = translator.rows * (1 + WAITING_ROWS)

    def submit(self, requests: Sequence[SentenceRequest]) -> None:
        """Queue requests; see SentenceTranslator."""
        self._left += len(requests)
        # Rows of similar length are encoded together: less of the batch is padding.
        self._waiting.extend(sorted(requests, key=lambda request: (request.aligned, len(request.text))))
        self._feed()

    def take(self, patience_seconds: float) -> list[SentenceOutcome]:
        """Return outcomes; see SentenceTranslator."""
        if not self._refused and not self._is_enough:
            self._wake_up.clear()
            if not self._is_enough:  # none has ended since
                self._wake_up.wait(patience_seconds)
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        self._busy -= sum(len(call.requests) for call in ended)
        failed = [call for call in ended if call.call.error is not None]
        for call in failed:
            refusal = _refusal(call.call.error)
            if len(call.requests) == 1:
                self._refused.append((call.requests[0], refusal))
            else:  # one of them may be the reason why all failed
                self._suspects.update(call.requests)
                self._waiting.extendleft(call.requests)
        self._feed()
        outcomes, self._refused = self._refused, []
        outcomes += self._read([call for call in ended if call.call.error is None])
        self._left -= len(outcomes)
        return outcomes

    def _feed(self) -> None:
        """Fill the window, unless there is room for a few only: these cost more."""
        while self._waiting and (room := self.window - self._busy) >= min(self._most, len(self._waiting)):
            requests = [self._waiting.popleft()]
            while self._waiting and len(requests) < room and self._waiting[0].aligned == requests[0].aligned:
                requests.append(self._waiting.popleft())
            texts = self._prepare(requests)
            start = 0
            while start < len(requests):
                end = start + (1 if requests[start] in self._suspects else CALL_SENTENCES)
                with backend_errors():
                    self.translator.engine.submit(_SentenceCall(requests[start:end], texts[start:end], self).call)
                self._busy += len(requests[start:end])
                start = end

    def _prepare(self, requests: list[SentenceRequest]) -> Sequence[PreparedText]:
        """Tokenize. Requests that the model cannot take are refused and leave the list."""
        while requests:
            options = sentence_options(self._decoding, requests, requests[0].aligned and self.translator.aligns)
            try:
                with backend_errors():
                    prepared = self.translator.prepare([each.text for each in requests], options, *self._languages)
                    self.translator.lanes.open_for(prepared.rows)
                    return prepared.texts
            except InputError as error:
                self._refused.append((requests.pop(error.index), Refusal(str(error))))
        return ()

    def _read(self, calls: "list[_SentenceCall]") -> list[SentenceOutcome]:
        pairs = [pair for call in calls for pair in zip(call.requests, call.texts, strict=True)]
        aligned = [(request, text) for request, text in pairs if request.aligned]
        outputs = self.translator.outputs(PreparedRequest(tuple(text for _, text in aligned)))
        outcomes: list[SentenceOutcome] = [
            (request, sentence_translation_of(output)) for (request, _), output in zip(aligned, outputs, strict=True)
        ]
        return outcomes + self._decode([(request, text) for request, text in pairs if not request.aligned])

    def _decode(self, pairs: list[tuple[SentenceRequest, PreparedText]]) -> list[SentenceOutcome]:
        """Return the best translations alone: each text is one sentence, so there is nothing to put together."""
        rows = [text.rows[0] for _, text in pairs]
        texts = self.translator.tokenizer.decode([row.shown(row.hypotheses[0].tokens) for row in rows])
        return [
            (request, SentenceTranslation(prepared.spelt(0, text), None, row.hypotheses[0].finish is Finish.LENGTH))
            for (request, prepared), row, text in zip(pairs, rows, texts, strict=True)
        ]

    def on_end(self, call: "_SentenceCall") -> None:
        """Note the end of a call; runs in a thread of the engine."""
        self._ended.append(call)
        if self._is_enough:
            self._wake_up.set()

    @property
    def _is_enough(self) -> bool:
        return len(self._ended) * CALL_SENTENCES >= min(self._most, max(1, self._left // TAIL))


class _SentenceCall(Listener):
    __slots__ = ("call", "owner", "requests", "texts")

    def __init__(
        self, requests: Sequence[SentenceRequest], texts: Sequence[PreparedText], owner: EngineSentenceTranslator
    ) -> None:
        self.requests, self.texts, self.owner = requests, texts, owner
        self.call: Call[Row] = Call([row for text in texts for row in text.rows], self)

    def on_end(self) -> None:
        self.owner.on_end(self)


def identity_of(
    entry: VersionFolder, precision: str, manifest: LanguagePairs, request: TranslationRequest
) -> TranslatorIdentity:
    """Return the identity of a model for a request.

    Raises:
        InvalidInputError: the model does not have a language, or has several and the request names none.
    """
    chosen = request.source_language, request.target_language
    own = (
        choose_language(request.source_language, manifest.source_languages, SOURCE),
        choose_language(request.target_language, manifest.target_languages, TARGET),
    )
    source, target = (code if code != UNDETERMINED else given for code, given in zip(own, chosen, strict=True))
    manifest_digest = digest((entry.folder / FILE_NAME).read_bytes())
    options = chosen_options(request.decoding)
    return TranslatorIdentity(entry.name, str(entry.version), precision, manifest_digest, source, target, options)


def _refusal(error: ServingError | None) -> Refusal:
    """Return the refusal of a sentence that the runtime failed on.

    Raises:
        BackendError: the engine has stopped, so that trying again is useless.
    """
    if isinstance(error, UnavailableError):
        raise BackendError(str(error)) from error
    return Refusal(str(error))
