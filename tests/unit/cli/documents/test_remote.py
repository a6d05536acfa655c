"""Translating sentences with a server: the concurrency limit, and failed calls of a fake client."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from triptych_cli.documents import remote as module
from triptych_cli.documents.remote import ConcurrencyLimit, RemoteSentenceTranslator
from triptych_client import (
    DeadlineExceededError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ServerError,
    UnavailableError,
)
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded.request import BackendError, TranslationRequest

from ....fixtures.clock import Clock
from ...documents.translators import outcomes_of

FULL = ResourceExhaustedError("full", code="RESOURCE_EXHAUSTED", retry_delay_seconds=0.01)
AWAY = UnavailableError("no connection", code="UNAVAILABLE")


def start_limit() -> tuple[ConcurrencyLimit, Clock]:
    clock = Clock()
    return ConcurrencyLimit(8, 60.0, clock), clock


def test_the_limit_follows_successes_and_rejections() -> None:
    limit, _ = start_limit()
    assert limit.room() == 2
    for _ in range(3):
        limit.succeeded()
    assert limit.room() == 3
    for _ in range(100):
        limit.succeeded()
    assert limit.room() == 8
    limit, clock = start_limit()
    for _ in range(100):
        limit.succeeded()
    for _ in range(8):  # all calls in flight
        limit.refused(ResourceExhaustedError("full", code="RESOURCE_EXHAUSTED", retry_delay_seconds=2.0))
    assert limit.room() == 0
    assert 2.0 < limit.pause_seconds() < 2.2
    clock.now += 2.2
    assert limit.room() == 4


def test_patience_ends_retries_and_is_reset_by_a_success() -> None:
    limit, clock = start_limit()

    def wait() -> None:
        while clock.now < 100.0:
            limit.refused(AWAY)
            clock.now += limit.pause_seconds() + 1e-6
            assert limit.room() >= 1

    with pytest.raises(BackendError, match=r"no response for (5\d|60) s: UNAVAILABLE: no connection"):
        wait()
    assert 55.0 <= clock.now <= 60.1
    limit, clock = start_limit()
    limit.refused(AWAY)
    clock.now = 50.0
    limit.succeeded()
    for clock.now in (100.0, 150.0):
        limit.refused(AWAY)
    assert limit.pause_seconds() > 0


class FakeClient:
    """Translates into capitals; `fails` may raise instead."""

    def __init__(self, fails: Callable[[Sequence[str]], None]) -> None:
        self.calls: list[tuple[Sequence[str], dict[str, Any]]] = []
        self.fails = fails
        self.lock = threading.Lock()

    def translate(self, text: str, **arguments: Any) -> Any:
        [found] = self.translate_many([text], **arguments).outcomes
        return SimpleNamespace(model="toy", model_version="3", **vars(found))

    def translate_many(self, texts: Sequence[str], options: Any, **arguments: Any) -> Any:
        with self.lock:
            self.calls.append((texts, {**arguments, "aligned": options.return_alignment}))
            found = [SimpleNamespace(text=text.upper(), truncated=False, alignment=((1.0,),), spans=[(0, 1)]) for text in texts]
            outcomes: list[Any] = [SimpleNamespace(hypotheses=[each], source_spans=[(0, 2)]) for each in found]
            try:
                self.fails(texts)
            except InvalidArgumentError as error:
                outcomes[int(error.violations[0].field[9:-1])] = error
        return SimpleNamespace(outcomes=outcomes)

    def model(self, name: str, version: str) -> Any:
        return SimpleNamespace(precision="int8", source_languages=["en"], target_languages=["de", "fr"])

    def close(self) -> None:
        return


Start = Callable[..., tuple[RemoteSentenceTranslator, FakeClient]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    opened = []

    def start_(fails: Callable[[Sequence[str]], None] = lambda _: None) -> tuple[RemoteSentenceTranslator, FakeClient]:
        client = FakeClient(fails)
        monkeypatch.setattr(module, "connect", lambda *_, **__: client)
        request = TranslationRequest(server="here", target_language="fr")
        translator = RemoteSentenceTranslator(request, 4, 60.0).__enter__()
        opened.append(translator)
        return translator, client

    yield start_
    for translator in opened:
        translator.__exit__()


def times(count: int, error: Exception, probe: bool = False) -> Callable[[Sequence[str]], None]:
    """Fail the first calls, either after the probe or from the beginning."""
    left = [error] * count

    def fail(texts: Sequence[str]) -> None:
        if (probe or texts != [module.PROBE]) and left:
            raise left.pop()

    return fail


def with_text_7(make_error: Callable[[int], Exception]) -> Callable[[Sequence[str]], None]:
    """Fail calls that have this text."""

    def fail(texts: Sequence[str]) -> None:
        if "text 7" in texts:
            raise make_error(list(texts).index("text 7"))

    return fail


REQUESTS = [SentenceRequest(f"text {number}") for number in range(100)]
RESULTS = {request: SentenceTranslation(request.text.upper()) for request in REQUESTS}


def test_all_calls_name_the_model_of_the_first_response(start: Start) -> None:
    translator, client = start()
    identity = translator.identity
    assert (identity.model, identity.version, identity.precision) == ("toy", "3", "int8")
    assert (identity.source_language, identity.target_language) == ("en", "fr")
    assert outcomes_of(translator, REQUESTS) == RESULTS
    assert {(arguments["model"], arguments["model_version"]) for _, arguments in client.calls[1:]} == {("toy", "3")}
    assert max(len(texts) for texts, _ in client.calls) <= module.TEXTS_PER_CALL


def test_alignments_on_request(start: Start) -> None:
    translator, client = start()
    requests = [SentenceRequest("one", aligned=True), SentenceRequest("two"), SentenceRequest("three")]
    found = outcomes_of(translator, requests)
    aligned = found[requests[0]]
    assert isinstance(aligned, SentenceTranslation)
    assert aligned.alignment is not None
    assert aligned.alignment.source == [(0, 2)]
    assert found[requests[2]] == SentenceTranslation("THREE")
    calls = {tuple(texts): arguments["aligned"] for texts, arguments in client.calls}
    assert (calls["one",], calls["two", "three"]) == (True, False)


def invalid(index: int) -> Exception:
    violations = (FieldViolation(f"contents[{index}]", "too long"),)
    return InvalidArgumentError("wrong", code="INVALID_ARGUMENT", violations=violations)


@pytest.mark.parametrize(
    ("make_error", "problem"),
    [
        (invalid, "too long"),
        (lambda _: ServerError("it broke", code="INTERNAL"), "INTERNAL: it broke"),
        (lambda _: DeadlineExceededError("it broke", code="INTERNAL"), "INTERNAL: it broke"),
    ],
    ids=["invalid", "server error", "deadline"],
)
def test_only_the_text_that_fails_is_refused(start: Start, make_error: Callable[[int], Exception], problem: str) -> None:
    translator, _ = start(with_text_7(make_error))
    assert outcomes_of(translator, REQUESTS) == {**RESULTS, REQUESTS[7]: Refusal(problem)}


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (NotFoundError("model 'toy' version 3 is not here", code="NOT_FOUND"), "version 3 is not here"),
        (KeyError("a bug"), "KeyError: 'a bug'"),
    ],
)
def test_errors_that_no_retry_can_fix_end_the_job(start: Start, error: Exception, problem: str) -> None:
    translator, _ = start(times(1, error))
    with pytest.raises(BackendError, match=problem):
        outcomes_of(translator, REQUESTS)


def test_at_the_start_a_full_server_is_waited_for_and_an_unreachable_one_an_error(start: Start) -> None:
    translator, _ = start(times(2, FULL, probe=True))
    assert outcomes_of(translator, REQUESTS[:3])
    with pytest.raises(BackendError, match="no connection"):
        start(times(1, AWAY, probe=True))
