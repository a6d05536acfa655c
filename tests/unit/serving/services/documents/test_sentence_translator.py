"""Sentences of a document in the engine: options, faults of single sentences, and recorded times."""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triptych.decoding import DecodingOptions, SplitSentences
from triptych.v1.translation_pb2 import DocumentConfig
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceResult, SentenceTranslation
from triptych_serving.errors import EngineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.scheduling.request import Finish
from triptych_serving.services.documents.codec import query_from
from triptych_serving.services.documents.sentence_translator import MAX_ROWS, SentenceTranslator
from triptych_serving.services.translation_calls import TranslationQuery

QUERY = query_from(DocumentConfig(format="text", target_language_code="de"))
Fault = Callable[[Sequence[str]], None]


class UppercaseCalls:
    """Translate to upper case, unless `fault` raises."""

    def __init__(self, fault: Fault = lambda _: None) -> None:
        self.queries: list[TranslationQuery] = []
        self._fault = fault

    async def translate_with(
        self, translator: Any, query: TranslationQuery, context: Any
    ) -> tuple[list[Translation], ModelUse]:
        self.queries.append(query)
        self._fault(query.contents)
        alignment = np.array([[0.25, 0.75]], np.float32) if query.options.return_alignment else None
        best = [TranslationHypothesis(text.upper(), Finish.LENGTH, 1, None, alignment, ((0, 1),)) for text in query.contents]
        now = time.monotonic()
        stages = {"queue": (now, now), "prefill": (now, now + 1), "decode": (now + 1, now + 2)}
        return [Translation((one,), 2, ((0, 1), (1, 1))) for one in best], ModelUse("toy", "1", first_token=now, stages=stages)


def translator_of(calls: Any, rows: int = 64) -> SentenceTranslator:
    manifest = SimpleNamespace(source_languages=["eng_Latn"], target_languages=["deu_Latn", "fra_Latn"])
    translator: Any = SimpleNamespace(name="toy", version=1, rows=rows, manifest=manifest, aligns=True)
    context: Any = None
    return SentenceTranslator(calls, translator, QUERY, context)


def translate(calls: UppercaseCalls, *requests: SentenceRequest) -> list[SentenceResult]:
    return asyncio.run(translator_of(calls).translate(requests))


def texts_of(results: Sequence[SentenceResult]) -> list[str | None]:
    return [result.text if isinstance(result, SentenceTranslation) else None for result in results]


def raise_error(error: Exception) -> Fault:
    def fault(texts: Sequence[str]) -> None:
        raise error

    return fault


def test_alignment_and_truncation() -> None:
    calls = UppercaseCalls()
    assert translate(calls, SentenceRequest("a")) == [SentenceTranslation("A", None, truncated=True)]
    [aligned] = translate(calls, SentenceRequest("a", aligned=True))
    assert isinstance(aligned, SentenceTranslation)
    assert aligned.alignment == Alignment(((0, 1), (1, 1)), ((0, 1),), [[0.25, 0.75]])


def test_sentences_are_not_split() -> None:
    calls = UppercaseCalls()
    translate(calls, SentenceRequest("a"), SentenceRequest("b"))
    assert [query.options for query in calls.queries] == [DecodingOptions(split_sentences=SplitSentences.OFF)]


@pytest.mark.parametrize("field", ["contents", "options.target_prefix"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_invalid_sentence_fails_alone(field: str, index: int) -> None:
    words = ["a", "b", "c"]

    def fault(texts: Sequence[str]) -> None:
        if words[index] in texts:
            raise InvalidInputError(f"{field}[{texts.index(words[index])}]", "bad")

    results = translate(UppercaseCalls(fault), *map(SentenceRequest, words))
    assert texts_of(results) == [None if place == index else word.upper() for place, word in enumerate(words)]
    assert results[index] == Refusal("bad")


def test_sentence_that_breaks_the_engine_fails_alone() -> None:
    def fault(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise EngineError("the runtime failed")

    results = translate(UppercaseCalls(fault), *map(SentenceRequest, ("a", "poison", "c")))
    assert texts_of(results) == ["A", None, "C"]


def test_batch_larger_than_the_queue_is_translated_one_by_one() -> None:
    def fault(texts: Sequence[str]) -> None:
        if len(texts) > 1:
            raise InvalidInputError("contents", "3 rows in one request")

    assert texts_of(translate(UppercaseCalls(fault), *map(SentenceRequest, "abc"))) == ["A", "B", "C"]


def test_errors_that_concern_every_sentence() -> None:
    with pytest.raises(InvalidInputError, match=r"^config\.options\.beam_size: "):
        translate(UppercaseCalls(raise_error(InvalidInputError("options.beam_size", "too large"))), SentenceRequest("a"))
    with pytest.raises(UnavailableError):
        translate(UppercaseCalls(raise_error(UnavailableError("shutting down"))), SentenceRequest("a"))


def test_full_queue_is_retried() -> None:
    errors = [OverloadedError("full", 0.001)] * 2

    def fault(texts: Sequence[str]) -> None:
        if errors:
            raise errors.pop()

    calls = UppercaseCalls(fault)
    assert texts_of(translate(calls, SentenceRequest("a"))) == ["A"]
    assert len(calls.queries) == 3


def test_languages_are_bcp_47() -> None:
    assert translator_of(UppercaseCalls()).languages == ("en", "de")


@pytest.mark.parametrize(("rows", "expected"), [(1, 2), (64, 128), (4096, MAX_ROWS)])
def test_rows_in_flight(rows: int, expected: int) -> None:
    assert translator_of(UppercaseCalls(), rows).rows == expected


def test_times_of_all_batches_are_combined() -> None:
    async def main() -> ModelUse:
        translator = translator_of(UppercaseCalls())
        for _ in range(3):
            await translator.translate([SentenceRequest("a")])
        return translator.use

    use = asyncio.run(main())
    start, end = use.stages["inference"]
    assert 2 <= end - start < 60
    assert use.first_token <= start
    assert set(use.stages) == {"inference", "queue"}
