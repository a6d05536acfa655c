"""Asks for a server: several calls at once, as many as it has room for."""

import queue
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Self

from triptych_cli.common.connection import connect
from triptych_cli.documents.pressure import Pressure
from triptych_client import (
    DeadlineExceededError,
    DecodingOptions,
    InvalidArgumentError,
    ResourceExhaustedError,
    ServerError,
    SplitSentences,
    Translation,
    TriptychClientError,
)
from triptych_client.arguments import ScoreArguments
from triptych_client.call import is_transient
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded.decoding import decoding_values, given
from triptych_embedded.identity import Identity
from triptych_embedded.request import FIELD, BackendError, Request
from triptych_embedded.translating import Outcome

TEXTS_PER_CALL = 32
CALL_SECONDS = 120.0  # a call's time limit
LANGUAGE_PROBE = "1"  # what is translated first, to learn which model answers


@dataclass(frozen=True)
class Sent:
    """A call that has ended."""

    asks: tuple[SentenceRequest, ...]
    result: Sequence[Translation] | Exception


class RemoteTranslating:
    """Asks the server at `request.server`. A call that fails is cut in two, down to the ask that is the cause.

    Args:
        request: which model, and how it decodes.
        concurrency: the most calls at once.
        patience_seconds: how long a server may be full or away before the job gives up.
    """

    def __init__(self, request: Request, concurrency: int, patience_seconds: float) -> None:
        self._request = request
        self._concurrency = concurrency
        self._pressure = Pressure(concurrency, patience_seconds)
        self._todo: deque[tuple[SentenceRequest, ...]] = deque()
        self._ended: queue.SimpleQueue[Sent] = queue.SimpleQueue()
        self._under_way = 0

    def __enter__(self) -> Self:
        self._client = connect(
            self._request.server, retries=0, concurrency=1, texts_per_call=TEXTS_PER_CALL, timeout_seconds=CALL_SECONDS
        )
        self._arguments: ScoreArguments = {
            "model": self._request.model or None,
            "source_language": self._request.source_language or None,
            "target_language": self._request.target_language or None,
        }
        try:
            self._identity = self._find()
        except TriptychClientError as error:
            self._client.close()
            raise BackendError(str(error)) from error
        self._pool = ThreadPoolExecutor(self._concurrency, "triptych-documents")
        return self

    def __exit__(self, *details: object) -> None:
        self._todo.clear()
        self._client.close()  # ends the calls that are under way
        self._pool.shutdown(cancel_futures=True)

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def window(self) -> int:
        return 2 * self._concurrency * TEXTS_PER_CALL

    def submit(self, asks: Sequence[SentenceRequest]) -> None:
        for _, some in groupby(sorted(asks, key=attrgetter("aligned")), attrgetter("aligned")):
            same = tuple(some)
            self._todo.extend(same[start : start + TEXTS_PER_CALL] for start in range(0, len(same), TEXTS_PER_CALL))
        self._send()

    def take(self, patience_seconds: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        until = time.monotonic() + patience_seconds
        while not outcomes and (left := until - time.monotonic()) > 0:
            self._send()
            try:
                outcomes += self._settle(self._ended.get(timeout=min(left, self._pressure.pause_seconds() or left)))
            except queue.Empty:
                continue
        self._send()
        return outcomes

    def _find(self) -> Identity:
        """The model that answers, which is asked for by name and version from now on: all answers are its own."""
        request, decoding = self._request, self._request.decoding
        options = DecodingOptions(**decoding_values(decoding, [], aligned=False), split_sentences=SplitSentences.OFF)
        first = self._probe(options)
        model = self._client.model(first.model, first.model_version)
        self._arguments["model"], self._arguments["model_version"] = first.model, first.model_version
        return Identity(
            first.model,
            first.model_version,
            model.precision,
            source_language=request.source_language or _only(model.source_languages),
            target_language=request.target_language or _only(model.target_languages),
            decoding=given(decoding),
        )

    def _probe(self, options: DecodingOptions) -> Translation:
        """A server that is full is waited for; one that is not there may be a wrong address."""
        while True:
            try:
                return self._client.translate(LANGUAGE_PROBE, options=options, **self._arguments)
            except ResourceExhaustedError as error:
                if not is_transient(error):
                    raise
                self._pressure.refused(error)
                time.sleep(self._pressure.pause_seconds())

    def _send(self) -> None:
        while self._todo and self._under_way < self._pressure.room():
            self._under_way += 1
            self._pool.submit(self._call, self._todo.popleft())

    def _call(self, asks: tuple[SentenceRequest, ...]) -> None:
        """In a thread of its own. However it ends, `take` hears of it."""
        try:
            self._ended.put(Sent(asks, self._translate(asks)))
        except Exception as error:
            self._ended.put(Sent(asks, error))

    def _translate(self, asks: tuple[SentenceRequest, ...]) -> Sequence[Translation]:
        values = decoding_values(self._request.decoding, asks, asks[0].aligned)
        options = DecodingOptions(**values, split_sentences=SplitSentences.OFF)
        return self._client.translate_many([ask.text for ask in asks], options=options, **self._arguments).translations

    def _settle(self, sent: Sent) -> list[Outcome]:
        self._under_way -= 1
        if isinstance(sent.result, TriptychClientError):
            return self._failed(sent.asks, sent.result)
        if isinstance(sent.result, UnicodeError):  # half a surrogate pair cannot be sent
            return self._narrowed(sent.asks, sent.result)
        if isinstance(sent.result, Exception):
            raise BackendError(f"{type(sent.result).__name__}: {sent.result}") from sent.result
        self._pressure.succeeded()
        return [(ask, _answer(ask, found)) for ask, found in zip(sent.asks, sent.result, strict=True)]

    def _failed(self, asks: tuple[SentenceRequest, ...], error: TriptychClientError) -> list[Outcome]:
        if is_transient(error):
            self._pressure.refused(error)
            self._todo.appendleft(asks)
            return []
        if isinstance(error, InvalidArgumentError) and (faults := _faults(error, len(asks))):
            if rest := tuple(ask for index, ask in enumerate(asks) if index not in faults):
                self._todo.appendleft(rest)
            return [(asks[index], Refusal(problem)) for index, problem in faults.items()]
        if not isinstance(error, ServerError | DeadlineExceededError):
            raise BackendError(str(error)) from error
        return self._narrowed(asks, error)

    def _narrowed(self, asks: tuple[SentenceRequest, ...], error: Exception) -> list[Outcome]:
        """One of the asks is the cause: each half is sent by itself."""
        if len(asks) == 1:
            return [(asks[0], Refusal(str(error)))]
        self._todo.extendleft((asks[len(asks) // 2 :], asks[: len(asks) // 2]))
        return []


def _faults(error: InvalidArgumentError, count: int) -> dict[int, str]:
    """What is wrong with which text of a call."""
    found = {}
    for violation in error.violations:
        match = FIELD.fullmatch(violation.field)
        if match and int(match[1]) < count:
            found[int(match[1])] = violation.description
    return found


def _answer(ask: SentenceRequest, found: Translation) -> SentenceTranslation:
    best = found.hypotheses[0]
    alignment = Alignment(found.source_spans, best.spans, best.alignment) if ask.aligned and best.alignment else None
    return SentenceTranslation(best.text, alignment, best.truncated)


def _only(languages: Sequence[str]) -> str:
    return languages[0] if len(languages) == 1 else ""
