"""Translating sentences with an engine in this process, whose queue takes one window."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded import engine as module
from triptych_embedded.engine import EngineSentenceTranslator, open_sentence_translator
from triptych_embedded.models import open_registry
from triptych_embedded.request import BackendError, ModelChoice, TranslationRequest
from triptych_embedded.sentences import TranslatorIdentity
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.errors import EngineError, UnavailableError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.loading import load_registry
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.request import Call, Row

from ...fixtures.toy import MODELS, SOURCES, TARGETS
from ..documents.translators import outcomes_of


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    limits = DecodeLimits(waiting_rows=module.WAITING_ROWS + 1)
    registry = load_registry(MODELS, DecodeModelOptions(engine=EngineOptions(slots=1, limits=limits)), "toy")
    [found] = registry.translators
    yield found
    registry.close()


@pytest.fixture
def sentences(translator: Translator) -> EngineSentenceTranslator:
    return EngineSentenceTranslator(translator, TranslationRequest(), TranslatorIdentity("toy", "1"))


def test_more_sentences_than_the_queue_takes(sentences: EngineSentenceTranslator) -> None:
    requests = [SentenceRequest(source) for source in SOURCES[:30]]
    assert len(requests) > 3 * sentences.window
    found = outcomes_of(sentences, requests)
    texts = {request.text: found.text for request, found in found.items() if isinstance(found, SentenceTranslation)}
    assert texts == dict(zip(SOURCES[:30], TARGETS[:30], strict=True))
    assert sentences.take(0.0) == []


def test_plain_aligned_and_refused_sentences(sentences: EngineSentenceTranslator) -> None:
    requests = [SentenceRequest(source, aligned=number % 2 == 0) for number, source in enumerate(SOURCES[:24])]
    refused = [SentenceRequest(f"half a pair {number} \ud800") for number in range(12)]
    found = outcomes_of(sentences, requests + refused)
    assert {request for request, outcome in found.items() if isinstance(outcome, Refusal)} == set(refused)
    aligned = {key for key, outcome in found.items() if isinstance(outcome, SentenceTranslation) and outcome.alignment}
    assert aligned == {request for request in requests if request.aligned}


def test_the_queue_has_room_for_the_window_of_many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[EngineOptions] = []

    @contextmanager
    def open_registry(choice: ModelChoice, capability: str, engine: EngineOptions) -> Iterator[NoReturn]:
        opened.append(engine)
        raise BackendError("enough")
        yield

    monkeypatch.setattr(module, "open_registry", open_registry)
    with pytest.raises(BackendError, match="enough"), open_sentence_translator(TranslationRequest(), workers=64):
        pass
    [engine] = opened
    window = 64 * engine.slots * (1 + module.WAITING_ROWS)
    assert window > DecodeLimits().waiting_calls
    assert engine.limits.waiting_calls >= window
    assert engine.limits.waiting_rows >= window


def test_one_call_may_have_more_rows_than_a_server_lets_wait() -> None:
    count = DecodeLimits().waiting_rows + 1
    with open_registry(ModelChoice(MODELS, "toy"), "translation") as registry:
        [translator] = registry.translators
        assert len(translator.prepare(["1."] * count).rows) == count


def test_all_cpus_work_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_embedded.models.usable_cpus", lambda: 3)
    with open_registry(ModelChoice(MODELS, "toy"), "translation") as registry:
        assert [translator.rows for translator in registry.translators] == [3 * EngineOptions().slots]


def test_sentences_of_a_failed_call_are_tried_alone(
    sentences: EngineSentenceTranslator, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, sizes = translator.engine.submit, []
    shortest = min(SOURCES[:20], key=len)  # in the first call
    [bad] = translator.prepare([shortest]).rows

    def failing(call: Call[Row]) -> None:
        sizes.append(len(call.rows))
        if any(row.source == bad.source for row in call.rows):
            call.fail(EngineError("it broke"))
        else:
            submit(call)

    monkeypatch.setattr(translator.engine, "submit", failing)
    found = outcomes_of(sentences, [SentenceRequest(source) for source in SOURCES[:20]])
    assert [request.text for request, outcome in found.items() if isinstance(outcome, Refusal)] == [shortest]
    assert module.CALL_SENTENCES in sizes
    assert sizes.count(1) >= module.CALL_SENTENCES


def test_nothing_is_tried_again_if_the_engine_has_stopped(
    sentences: EngineSentenceTranslator, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translator.engine, "submit", lambda call: call.fail(UnavailableError("shutting down")))
    sentences.submit([SentenceRequest(source) for source in SOURCES[:20]])
    with pytest.raises(BackendError, match="shutting down"):
        sentences.take(5.0)
