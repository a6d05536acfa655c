"""Asks for an engine in this process: more of them than its queue takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded import sentence_translator as embedded
from triptych_embedded.request import BackendError, Place, Request
from triptych_embedded.sentence_translator import EmbeddedTranslating, EngineAsking
from triptych_embedded.translating import Outcome
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.errors import EngineError, UnavailableError
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.loading import load_registry
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.request import Call, Row

from ....fixtures.toy import MODELS, SOURCES, TARGETS


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    """Whose queue takes one window."""
    limits = DecodeLimits(waiting_rows=embedded.WAITING_ROWS + 1)
    registry = load_registry(MODELS, TranslatorOptions(engine=EngineOptions(slots=1, limits=limits)), "toy")
    [found] = registry.translators
    yield found
    registry.close(drain=False)


def outcomes_of(asking: EngineAsking, count: int) -> list[Outcome]:
    found: list[Outcome] = []
    while len(found) < count:
        found += asking.take(5.0)
    return found


def test_what_is_more_than_the_queue_takes_waits(translator: Translator) -> None:
    asking = EngineAsking(translator, Request(), running=1)
    asks = [SentenceRequest(source) for source in SOURCES[:30]]
    assert len(asks) > 3 * asking.window
    asking.submit(asks)
    found = outcomes_of(asking, len(asks))
    assert len(found) == len(asks)
    texts = {ask.text: outcome.text for ask, outcome in found if isinstance(outcome, SentenceTranslation)}
    assert texts == dict(zip(SOURCES[:30], TARGETS[:30], strict=True))
    assert asking.take(0.0) == []


def test_asks_of_both_kinds_and_refused_ones_have_their_turn(translator: Translator) -> None:
    asking = EngineAsking(translator, Request(), running=1)
    asks = [SentenceRequest(source, aligned=number % 2 == 0) for number, source in enumerate(SOURCES[:24])]
    refused = [SentenceRequest(f"half a pair {number} \ud800") for number in range(12)]
    asking.submit(asks + refused)
    found = dict(outcomes_of(asking, len(asks) + len(refused)))
    assert {ask for ask, outcome in found.items() if isinstance(outcome, Refusal)} == set(refused)
    answers = {ask: outcome for ask, outcome in found.items() if isinstance(outcome, SentenceTranslation)}
    assert {ask for ask, answer in answers.items() if answer.alignment} == {ask for ask in asks if ask.aligned}


def test_a_window_of_many_cpus_has_room_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[EngineOptions] = []

    def open_(repository: Path, place: Place, capability: str, engine: EngineOptions) -> None:
        opened.append(engine)
        raise BackendError("enough")

    monkeypatch.setattr(embedded, "open_registry", open_)
    with pytest.raises(BackendError, match="enough"):
        EmbeddedTranslating(Request(), MODELS, workers=64).__enter__()
    [engine] = opened
    window = 64 * engine.slots * (1 + embedded.WAITING_ROWS)
    assert window > DecodeLimits().waiting_calls
    assert engine.limits.waiting_calls >= window
    assert engine.limits.waiting_rows >= window


def test_asks_that_failed_together_are_asked_alone(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, sizes = translator.engine.submit, []
    shortest = min(SOURCES[:20], key=len)  # one of the first call's
    [bad] = translator.prepare([shortest]).rows

    def failing(call: Call[Row]) -> None:
        sizes.append(len(call.rows))
        if any(row.source == bad.source for row in call.rows):
            call.fail(EngineError("it broke"))
        else:
            submit(call)

    monkeypatch.setattr(translator.engine, "submit", failing)
    asking = EngineAsking(translator, Request(), running=1)
    asks = [SentenceRequest(source) for source in SOURCES[:20]]
    asking.submit(asks)
    found = dict(outcomes_of(asking, len(asks)))
    assert [ask.text for ask, outcome in found.items() if isinstance(outcome, Refusal)] == [shortest]
    assert len(found) == len(asks)
    assert embedded.TOGETHER in sizes
    assert sizes.count(1) >= embedded.TOGETHER


def test_nobody_is_asked_again_where_the_engine_works_no_more(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator.engine, "submit", lambda call: call.fail(UnavailableError("shutting down")))
    asking = EngineAsking(translator, Request(), running=1)
    asking.submit([SentenceRequest(source) for source in SOURCES[:20]])
    with pytest.raises(BackendError, match="shutting down"):
        asking.take(5.0)
