"""A server translates texts, alone and in batches, and as streams."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import AsyncClient, Client

from ..fixtures.toy import SOURCE, SOURCES, TARGET, TARGETS
from .support.processes import ServerProcess

IN_FLIGHT = 64
MANY, ANSWERS = SOURCES[:128], TARGETS[:128]


def all_with_sync_client(address: str) -> list[str]:
    with Client(address, concurrency=IN_FLIGHT, texts_per_call=1) as client:
        return client.translate_many(MANY).texts


def all_with_async_client(address: str) -> list[str]:
    async def main() -> list[str]:
        async with AsyncClient(address, concurrency=IN_FLIGHT, texts_per_call=1) as client:
            return (await client.translate_many(MANY)).texts

    return asyncio.run(main())


def all_with_grpc(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        stub = TranslationServiceStub(channel)
        calls = [stub.Translate.future(translation_pb2.TranslateRequest(contents=[source])) for source in MANY]
        return [call.result().translations[0].translated_text for call in calls]


@pytest.mark.parametrize("translate_all", [all_with_sync_client, all_with_async_client, all_with_grpc])
def test_every_sentence_is_answered_exactly_and_in_order(
    server: ServerProcess, translate_all: Callable[[str], list[str]]
) -> None:
    assert translate_all(server.address) == ANSWERS


def test_an_answer_says_where_it_comes_from(translation: TranslationServiceStub) -> None:
    response = translation.Translate(translation_pb2.TranslateRequest(contents=[SOURCE]))
    [answer] = response.translations
    [hypothesis] = answer.hypotheses
    assert (response.model, response.model_version) == ("toy", "1")
    assert hypothesis.text == answer.translated_text == TARGET
    assert hypothesis.finish_reason == translation_pb2.FINISH_REASON_STOP
    assert not hypothesis.HasField("score")
    assert answer.source_token_count > hypothesis.token_count / 2 > 0
    timing = response.timing
    assert timing.inference_seconds > 0
    assert timing.time_to_first_token_seconds > 0
    assert timing.time_to_first_token_seconds >= timing.queue_seconds >= 0


def assert_is_a_good_stream(events: Iterator[translation_pb2.TranslateStreamResponse], expected: Sequence[str]) -> None:
    """Each text's pieces grow into its translation, which comes once and after them; the summary is last."""
    grown = [""] * len(expected)
    results: dict[int, str] = {}
    *before, last = events
    for event in before:
        if event.WhichOneof("event") == "piece":
            index = event.piece.content_index
            grown[index] += event.piece.text
            assert event.piece.text
            assert index not in results
            assert expected[index].startswith(grown[index])
        else:
            assert event.WhichOneof("event") == "result"
            assert event.result.content_index not in results
            results[event.result.content_index] = event.result.translation.translated_text
    assert grown == [results[index] for index in range(len(expected))] == expected
    assert (last.summary.model, last.summary.model_version) == ("toy", "1")
    assert last.summary.timing.inference_seconds > 0


def test_streams_and_calls_at_once(server: ServerProcess, translation: TranslationServiceStub) -> None:
    request = translation_pb2.TranslateStreamRequest(contents=SOURCES[:20])
    streams = [translation.TranslateStream(request) for _ in range(4)]
    assert all_with_sync_client(server.address) == ANSWERS
    for stream in streams:
        assert_is_a_good_stream(stream, TARGETS[:20])
