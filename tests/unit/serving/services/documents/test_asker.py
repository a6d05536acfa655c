"""What a document asks the engine, and what it makes of its faults."""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triptych.v1.translation_pb2 import DocumentConfig
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceTranslation
from triptych_serving.errors import EngineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.postprocess import Output, OutputHypothesis
from triptych_serving.rpc.call_context import ModelUse
from triptych_serving.scheduling.request import Finish
from triptych_serving.services.documents.asker import MAX_ROWS, Asker
from triptych_serving.services.documents.codec import order_from
from triptych_serving.services.translation_calls import Texts

ORDER = order_from(DocumentConfig(format="text", target_language_code="de"))


class Calls:
    """Shouts; `fault` may raise first."""

    def __init__(self, fault: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self.asked: list[Texts] = []
        self._fault = fault

    async def translate_by(self, translator: Any, texts: Texts, context: Any) -> tuple[list[Output], ModelUse]:
        self.asked.append(texts)
        self._fault(texts.contents)
        aligned = texts.options.return_alignment
        alignment = np.array([[0.25, 0.75]], np.float32) if aligned else None
        hypotheses = [OutputHypothesis(text.upper(), Finish.LENGTH, 1, None, alignment, ((0, 1),)) for text in texts.contents]
        now = time.monotonic()
        use = ModelUse(
            "toy", "1", first_token=now, stages={"queue": (now, now), "prefill": (now, now + 1), "decode": (now + 1, now + 2)}
        )
        return [Output((hypothesis,), 2, ((0, 1), (1, 1))) for hypothesis in hypotheses], use


def asker(calls: Any, rows: int = 64) -> Asker:
    manifest = SimpleNamespace(source_languages=["eng_Latn"], target_languages=["deu_Latn", "fra_Latn"])
    translator: Any = SimpleNamespace(name="toy", version=1, rows=rows, manifest=manifest)
    context: Any = None
    return Asker(calls, translator, ORDER, context)


def answers(calls: Calls, *asks: SentenceRequest) -> list[SentenceTranslation | Refusal]:
    return asyncio.run(asker(calls).answers(asks))


def texts_of(found: Sequence[SentenceTranslation | Refusal]) -> list[str | None]:
    return [answer.text if isinstance(answer, SentenceTranslation) else None for answer in found]


def refuse(index: int, word: str, field: str = "contents") -> Callable[[Sequence[str]], None]:
    def fault(texts: Sequence[str]) -> None:
        if word in texts:
            raise InvalidInputError(f"{field}[{texts.index(word)}]", f"{word} is bad")

    return fault


def test_answers_have_what_was_asked_for() -> None:
    calls = Calls()
    [plain] = answers(calls, SentenceRequest("a"))
    assert plain == SentenceTranslation("A", None, truncated=True)
    [aligned] = answers(calls, SentenceRequest("a", aligned=True))
    assert isinstance(aligned, SentenceTranslation)
    assert aligned.alignment == Alignment(((0, 1), (1, 1)), ((0, 1),), [[0.25, 0.75]])


def test_prefixes_are_one_for_each_or_none() -> None:
    calls = Calls()
    answers(calls, SentenceRequest("a"), SentenceRequest("b"))
    answers(calls, SentenceRequest("a", prefix="Der"), SentenceRequest("b"))
    expected = [DecodingOptions(split_sentences=False), DecodingOptions(split_sentences=False, target_prefix=("Der", ""))]
    assert [texts.options for texts in calls.asked] == expected


@pytest.mark.parametrize("field", ["contents", "options.target_prefix"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_text_that_is_refused_stands_alone(field: str, place: int) -> None:
    words = ["a", "b", "c"]
    found = answers(Calls(refuse(place, words[place], field)), *map(SentenceRequest, words))
    assert texts_of(found) == [None if index == place else word.upper() for index, word in enumerate(words)]
    assert found[place] == Refusal(f"{words[place]} is bad")


def test_a_text_that_breaks_the_engine_stands_alone() -> None:
    def fault(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise EngineError("the runtime failed")

    found = answers(Calls(fault), SentenceRequest("a"), SentenceRequest("poison"), SentenceRequest("c"))
    assert texts_of(found) == ["A", None, "C"]


def test_a_batch_that_is_too_large_for_the_queue_is_asked_one_by_one() -> None:
    def fault(texts: Sequence[str]) -> None:
        if len(texts) > 1:
            raise InvalidInputError("contents", "3 rows in one request")

    assert texts_of(answers(Calls(fault), SentenceRequest("a"), SentenceRequest("b"), SentenceRequest("c"))) == ["A", "B", "C"]


def test_what_is_wrong_with_an_option_is_wrong_with_the_config() -> None:
    def fault(texts: Sequence[str]) -> None:
        raise InvalidInputError("options.beam_size", "too large")

    with pytest.raises(InvalidInputError) as error:
        answers(Calls(fault), SentenceRequest("a"), SentenceRequest("b"))
    assert error.value.field == "config.options.beam_size"


def test_a_full_queue_is_waited_for() -> None:
    left = [2]

    def fault(texts: Sequence[str]) -> None:
        if left[0]:
            left[0] -= 1
            raise OverloadedError("full", 0.001)

    calls = Calls(fault)
    assert texts_of(answers(calls, SentenceRequest("a"))) == ["A"]
    assert len(calls.asked) == 3


def test_a_model_that_is_gone_ends_it() -> None:
    def fault(texts: Sequence[str]) -> None:
        raise UnavailableError("shutting down")

    with pytest.raises(UnavailableError):
        answers(Calls(fault), SentenceRequest("a"))


def test_languages_are_bcp_47() -> None:
    assert asker(Calls()).languages == ("en", "de")


@pytest.mark.parametrize(("rows", "expected"), [(1, 2), (64, 128), (4096, MAX_ROWS)])
def test_so_many_rows_keep_the_engine_busy(rows: int, expected: int) -> None:
    assert asker(Calls(), rows).rows == expected


def test_the_time_of_all_batches_is_one() -> None:
    async def main() -> ModelUse:
        one = asker(Calls())
        for _ in range(3):
            await one.answers([SentenceRequest("a")])
        return one.use

    use = asyncio.run(main())
    start, end = use.stages["inference"]
    assert 2 <= end - start < 60
    assert use.first_token <= start
    assert set(use.stages) == {"inference", "queue"}
