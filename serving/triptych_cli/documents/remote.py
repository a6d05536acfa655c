"""Translate sentences of documents with a server: several calls at once, as many as it has room for."""

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from triptych_cli.common.connection import connect, input_problem, translation_arguments
from triptych_client import DeadlineExceededError, ResourceExhaustedError, ServerError, Translation, TriptychClientError
from triptych_client.call import Attempts, Call, is_transient
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceResult, SentenceTranslation
from triptych_embedded.request import BackendError, TranslationRequest
from triptych_embedded.sentences import SentenceOutcome, TranslatorIdentity, chosen_options, sentence_options

TEXTS_PER_CALL = 32
CALL_SECONDS = 120.0  # time limit of a call
PROBE = "1"  # text that is translated first, to find out which model responds
FIRST_CALLS = 2.0


class ConcurrencyLimit:
    """Additive increase, multiplicative decrease (as in TCP) of the number of concurrent calls. Not thread-safe.

    Args:
        patience_seconds: give up if the server has rejected all calls for nearly so long, with the pauses of the client.
    """

    def __init__(self, most: int, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(most)
        self._call = Call("", patience_seconds)
        self._clock = clock
        self._calls = min(FIRST_CALLS, self._most)
        self._attempts: Attempts | None = None  # since the last success
        self._paused_until = 0.0

    def room(self) -> int:
        """Return how many calls may be in flight now."""
        return 0 if self.pause_seconds() else int(self._calls)

    def pause_seconds(self) -> float:
        """Return the time until calls may be sent again; 0: now."""
        return max(0.0, self._paused_until - self._clock())

    def succeeded(self) -> None:
        """Record a call that succeeded."""
        self._attempts = None
        self._calls = min(self._most, self._calls + 1 / self._calls)

    def refused(self, error: TriptychClientError) -> None:
        """Record a call that found the server full or unreachable, and is to be sent again.

        Raises:
            BackendError: this has gone on for too long.
        """
        if self.pause_seconds():  # of the calls that were sent together, the first one counts
            return
        self._attempts = self._attempts or Attempts(self._call, self._clock)
        try:
            pause = self._attempts.pause_after(error)
        except TriptychClientError:
            waited = self._call.timeout_seconds - self._attempts.remaining_seconds()
            raise BackendError(f"no response for {waited:,.0f} s: {error}") from error
        self._calls = max(1.0, self._calls / 2)
        self._paused_until = self._clock() + pause


Requests = tuple[SentenceRequest, ...]  # of a call


class RemoteSentenceTranslator:
    """A SentenceTranslator that calls the server at `request.server`. A context manager.

    A failed call is divided in two until the sentence that causes the failure is found.

    Args:
        concurrency: largest number of concurrent calls.
        patience_seconds: how long a server may be full or unreachable before the job fails.
    """

    def __init__(self, request: TranslationRequest, concurrency: int, patience_seconds: float) -> None:
        self._request = request
        self._concurrency = concurrency
        self._limit = ConcurrencyLimit(concurrency, patience_seconds)
        self._todo: deque[Requests] = deque()
        self._ended: queue.SimpleQueue[tuple[Requests, Sequence[Translation | TriptychClientError] | Exception]] = (
            queue.SimpleQueue()
        )
        self._in_flight = 0
        self.window = 2 * concurrency * TEXTS_PER_CALL

    def __enter__(self) -> Self:
        self._client = connect(
            self._request.server, retries=0, concurrency=1, texts_per_call=TEXTS_PER_CALL, timeout_seconds=CALL_SECONDS
        )
        self._arguments = translation_arguments(self._request)
        try:
            self.identity = self._find_model()
        except (TriptychClientError, ValueError) as error:  # ValueError: of arguments that are not Unicode
            self._client.close()
            raise BackendError(str(error)) from error
        self._pool = ThreadPoolExecutor(self._concurrency, "triptych-documents")
        return self

    def __exit__(self, *details: object) -> None:
        self._todo.clear()
        self._client.close()  # ends the calls in flight
        self._pool.shutdown(cancel_futures=True)

    def submit(self, requests: Sequence[SentenceRequest]) -> None:
        """Queue requests; see SentenceTranslator."""
        for aligned in (False, True):
            same = tuple(request for request in requests if request.aligned is aligned)
            self._todo.extend(same[start : start + TEXTS_PER_CALL] for start in range(0, len(same), TEXTS_PER_CALL))
        self._send()

    def take(self, patience_seconds: float) -> list[SentenceOutcome]:
        """Return outcomes; see SentenceTranslator."""
        outcomes: list[SentenceOutcome] = []
        until = time.monotonic() + patience_seconds
        while not outcomes and (left := until - time.monotonic()) > 0:
            self._send()
            try:
                outcomes += self._settle(*self._ended.get(timeout=min(left, self._limit.pause_seconds() or left)))
            except queue.Empty:
                continue
        self._send()
        return outcomes

    def _find_model(self) -> TranslatorIdentity:
        """Find the model that responds. From now on calls name it and its version, so that all results are from it."""
        request = self._request
        first = self._probe()
        model = self._client.model(first.model, first.model_version)
        self._arguments["model"], self._arguments["model_version"] = first.model, first.model_version
        return TranslatorIdentity(
            first.model,
            first.model_version,
            model.precision,
            source_language=request.source_language or _only(model.source_languages),
            target_language=request.target_language or _only(model.target_languages),
            decoding=chosen_options(request.decoding),
        )

    def _probe(self) -> Translation:
        """Wait for a server that is full; one that cannot be reached may be a wrong address."""
        options = sentence_options(self._request.decoding, [], aligned=False)
        while True:
            try:
                return self._client.translate(PROBE, options=options, **self._arguments)
            except ResourceExhaustedError as error:
                if not is_transient(error):
                    raise
                self._limit.refused(error)
                time.sleep(self._limit.pause_seconds())

    def _send(self) -> None:
        while self._todo and self._in_flight < self._limit.room():
            self._in_flight += 1
            self._pool.submit(self._call, self._todo.popleft())

    def _call(self, requests: Requests) -> None:
        """Call the server, in a thread of the pool. However the call ends, `take` receives the result."""
        try:
            options = sentence_options(self._request.decoding, requests, requests[0].aligned)
            found = self._client.translate_many([each.text for each in requests], options=options, **self._arguments)
            self._ended.put((requests, found.outcomes))
        except Exception as error:
            self._ended.put((requests, error))

    def _settle(
        self, requests: Requests, result: Sequence[Translation | TriptychClientError] | Exception
    ) -> list[SentenceOutcome]:
        self._in_flight -= 1
        if isinstance(result, TriptychClientError):
            return self._failed(requests, result)
        if isinstance(result, Exception):
            raise BackendError(f"{type(result).__name__}: {result}") from result
        self._limit.succeeded()
        return [(request, _result(request, found)) for request, found in zip(requests, result, strict=True)]

    def _failed(self, requests: Requests, error: TriptychClientError) -> list[SentenceOutcome]:
        if is_transient(error):
            self._limit.refused(error)
            self._todo.appendleft(requests)
            return []
        if not isinstance(error, ServerError | DeadlineExceededError):
            raise BackendError(str(error)) from error
        # One sentence is the cause: each half is sent by itself, and a single one is refused.
        if len(requests) == 1:
            return [(requests[0], Refusal(str(error)))]
        self._todo.extendleft((requests[len(requests) // 2 :], requests[: len(requests) // 2]))
        return []


def _result(request: SentenceRequest, found: Translation | TriptychClientError) -> SentenceResult:
    if isinstance(found, TriptychClientError):
        return Refusal(input_problem(found))
    best = found.hypotheses[0]
    alignment = Alignment(found.source_spans, best.spans, best.alignment) if request.aligned and best.alignment else None
    return SentenceTranslation(best.text, alignment, best.truncated)


def _only(languages: Sequence[str]) -> str:
    return languages[0] if len(languages) == 1 else ""
