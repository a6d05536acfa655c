"""Asks for a server, with a client that answers as it is told."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from triptych_cli.documents import remote as module
from triptych_cli.documents.remote import RemoteTranslating
from triptych_client import (
    DeadlineExceededError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    ServerError,
    TriptychClientError,
    UnavailableError,
)
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded.request import BackendError, Request
from triptych_embedded.translating import Outcome

FULL = ResourceExhaustedError("full", code="RESOURCE_EXHAUSTED", retry_delay_seconds=0.01)


class FakeClient:
    """Shouts; `fails` may raise instead."""

    def __init__(self, fails: Callable[[Sequence[str]], None]) -> None:
        self.calls: list[tuple[Sequence[str], dict[str, Any]]] = []
        self.fails = fails
        self.lock = threading.Lock()

    def translate(self, text: str, **arguments: Any) -> Any:
        [found] = self.translate_many([text], **arguments).translations
        return SimpleNamespace(model="toy", model_version="3", **vars(found))

    def translate_many(self, texts: Sequence[str], options: Any, **arguments: Any) -> Any:
        with self.lock:
            self.calls.append((texts, {**arguments, "aligned": options.return_alignment, "prefixes": options.target_prefix}))
            self.fails(texts)
        found = [SimpleNamespace(text=text.upper(), truncated=False, alignment=((1.0,),), spans=[(0, 1)]) for text in texts]
        return SimpleNamespace(translations=[SimpleNamespace(hypotheses=[each], source_spans=[(0, 2)]) for each in found])

    def model(self, name: str, version: str) -> Any:
        return SimpleNamespace(precision="int8", source_languages=["en"], target_languages=["de", "fr"])

    def close(self) -> None:
        return


Start = Callable[..., tuple[RemoteTranslating, FakeClient]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    opened = []

    def start_(fails: Callable[[Sequence[str]], None] = lambda _: None) -> tuple[RemoteTranslating, FakeClient]:
        client = FakeClient(fails)
        monkeypatch.setattr(module, "connect", lambda *_, **__: client)
        translating = RemoteTranslating(Request(server="here", target_language="fr"), 4, 60.0).__enter__()
        opened.append(translating)
        return translating, client

    yield start_
    for translating in opened:
        translating.__exit__()


def all_of(
    translating: RemoteTranslating, asks: Sequence[SentenceRequest]
) -> dict[SentenceRequest, SentenceTranslation | Refusal]:
    translating.submit(asks)
    outcomes: list[Outcome] = []
    while len(outcomes) < len(asks):
        outcomes += translating.take(5.0)
    assert len(outcomes) == len(asks)
    return dict(outcomes)


def once(error: TriptychClientError) -> Callable[[Sequence[str]], None]:
    """Fails the first call after the one that finds the model."""
    left = [error]

    def fail(texts: Sequence[str]) -> None:
        if texts != [module.LANGUAGE_PROBE] and left:
            raise left.pop()

    return fail


ASKS = [SentenceRequest(f"text {number}") for number in range(100)]
ANSWERS = {ask: SentenceTranslation(ask.text.upper()) for ask in ASKS}


def test_all_calls_are_for_the_model_that_answered_first(start: Start) -> None:
    translating, client = start()
    identity = translating.identity
    assert (identity.model, identity.version, identity.precision) == ("toy", "3", "int8")
    assert (identity.source_language, identity.target_language) == ("en", "fr")
    assert all_of(translating, ASKS) == ANSWERS
    assert {(arguments["model"], arguments["model_version"]) for _, arguments in client.calls[1:]} == {("toy", "3")}
    assert max(len(texts) for texts, _ in client.calls) <= module.TEXTS_PER_CALL


def test_alignments_and_prefixes_where_they_are_asked_for(start: Start) -> None:
    translating, client = start()
    found = all_of(
        translating, [SentenceRequest("one", aligned=True), SentenceRequest("two", prefix="zw"), SentenceRequest("three")]
    )
    aligned = found[SentenceRequest("one", aligned=True)]
    assert isinstance(aligned, SentenceTranslation)
    assert aligned.alignment is not None
    assert aligned.alignment.source == [(0, 2)]
    assert found[SentenceRequest("three")] == SentenceTranslation("THREE")
    calls = {tuple(texts): arguments for texts, arguments in client.calls}
    assert (calls["one",]["aligned"], calls["one",]["prefixes"]) == (True, ())
    assert (calls["two", "three"]["aligned"], calls["two", "three"]["prefixes"]) == (False, ("zw", ""))


@pytest.mark.parametrize("error", [FULL, UnavailableError("away", code="UNAVAILABLE")])
def test_a_server_that_is_full_or_away_is_asked_again(start: Start, error: TriptychClientError) -> None:
    translating, _ = start(once(error))
    assert all_of(translating, ASKS) == ANSWERS


def test_a_text_that_is_wrong_is_refused_alone(start: Start) -> None:
    def fail(texts: Sequence[str]) -> None:
        if "text 7" in texts:
            fault = FieldViolation(f"contents[{list(texts).index('text 7')}]", "too long")
            raise InvalidArgumentError("wrong", code="INVALID_ARGUMENT", violations=(fault,))

    translating, _ = start(fail)
    assert all_of(translating, ASKS) == {**ANSWERS, ASKS[7]: Refusal("too long")}


@pytest.mark.parametrize("kind", [ServerError, DeadlineExceededError])
def test_the_text_that_a_server_fails_at_is_found(start: Start, kind: type[TriptychClientError]) -> None:
    def fail(texts: Sequence[str]) -> None:
        if "text 7" in texts:
            raise kind("it broke", code="INTERNAL")

    translating, _ = start(fail)
    assert all_of(translating, ASKS) == {**ANSWERS, ASKS[7]: Refusal("INTERNAL: it broke")}


def test_what_no_call_can_change_ends_the_job(start: Start) -> None:
    translating, _ = start(once(NotFoundError("model 'toy' version 3 is not here", code="NOT_FOUND")))
    with pytest.raises(BackendError, match="version 3 is not here"):
        all_of(translating, ASKS)


def test_a_server_that_is_full_at_the_start_is_waited_for(start: Start) -> None:
    left = [FULL, FULL]

    def fail(texts: Sequence[str]) -> None:
        if left:
            raise left.pop()

    translating, _ = start(fail)
    assert all_of(translating, ASKS[:3])


def test_a_server_that_is_not_there_at_the_start_is_an_error(start: Start) -> None:
    def fail(texts: Sequence[str]) -> None:
        raise UnavailableError("nobody there", code="UNAVAILABLE")

    with pytest.raises(BackendError, match="nobody there"):
        start(fail)


def test_a_text_that_cannot_be_sent_is_refused_alone(start: Start) -> None:
    def fail(texts: Sequence[str]) -> None:
        for text in texts:
            text.encode()

    translating, _ = start(fail)
    half = SentenceRequest("half a pair \ud800")
    found = all_of(translating, [*ASKS, half])
    assert isinstance(found.pop(half), Refusal)
    assert found == ANSWERS


def test_a_fault_of_ours_ends_the_job_with_its_name(start: Start) -> None:
    def fail(texts: Sequence[str]) -> None:
        if "text 7" in texts:
            raise KeyError("nobody foresaw it")

    translating, _ = start(fail)
    with pytest.raises(BackendError, match="KeyError: 'nobody foresaw it'"):
        all_of(translating, ASKS)
