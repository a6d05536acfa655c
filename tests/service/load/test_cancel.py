"""Cancelled calls: their rows leave the engine, and other callers are not affected."""

import asyncio

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import AsyncClient, Client, DeadlineExceededError, DecodingOptions
from triptych_serving.models.translation.translator import Translator

from ...fixtures.toy import SOURCE, SOURCES, TARGET
from ..support.in_process import Pace
from ..support.processes import eventually

MANY = SOURCES * 3
OPTIONS = [
    pytest.param(translation_pb2.DecodingOptions(), id="greedy"),
    pytest.param(translation_pb2.DecodingOptions(beam_size=3), id="beams"),
    pytest.param(translation_pb2.DecodingOptions(sampling_topk=5), id="samples"),
]


def assert_idle_and_well(address: str, translator: Translator, pace: Pace) -> None:
    """Check that the engine is idle, that most of the work was skipped, and that the next call succeeds."""
    eventually(lambda: translator.engine.count_rows() == (0, 0))
    assert pace.steps < len(MANY)  # 1,152 rows of some 20 tokens in 8 slots would be 2,880 steps
    pace.slow.clear()
    with Client(address) as client:
        assert client.translate(SOURCE).text == TARGET


@pytest.mark.parametrize("options", OPTIONS)
def test_cancelled_stream(paced_server: tuple[str, Translator], pace: Pace, options: translation_pb2.DecodingOptions) -> None:
    address, translator = paced_server
    pace.slow.set()
    request = translation_pb2.TranslateStreamRequest(contents=MANY, options=options)
    with grpc.insecure_channel(address) as channel:
        events = TranslationServiceStub(channel).TranslateStream(request)
        assert [next(events).WhichOneof("event") for _ in range(3)] == ["piece"] * 3
        assert translator.engine.count_rows() != (0, 0)
        events.cancel()
        assert_idle_and_well(address, translator, pace)


def test_stream_with_a_slow_reader_that_disconnects(paced_server: tuple[str, Translator], pace: Pace) -> None:
    address, translator = paced_server
    with grpc.insecure_channel(address) as channel:
        events = TranslationServiceStub(channel).TranslateStream(translation_pb2.TranslateStreamRequest(contents=MANY))
        next(events)
        eventually(lambda: pace.steps > 100)
        pace.slow.set()
    assert_idle_and_well(address, translator, pace)


@pytest.mark.parametrize("options", OPTIONS)
def test_cancelled_call(paced_server: tuple[str, Translator], pace: Pace, options: translation_pb2.DecodingOptions) -> None:
    address, translator = paced_server
    pace.slow.set()
    request = translation_pb2.TranslateRequest(contents=MANY, options=options)
    with grpc.insecure_channel(address) as channel:
        call = TranslationServiceStub(channel).Translate.future(request)
        eventually(lambda: translator.engine.count_rows() != (0, 0))
        call.cancel()
        assert_idle_and_well(address, translator, pace)


def test_call_past_its_deadline(paced_server: tuple[str, Translator], pace: Pace) -> None:
    address, translator = paced_server
    pace.slow.set()
    texts = MANY[:1_000]  # one request, by their bytes, too
    with Client(address, texts_per_call=len(texts)) as client, pytest.raises(DeadlineExceededError):
        client.translate_many(texts, timeout_seconds=0.5)
    assert_idle_and_well(address, translator, pace)


def test_many_cancelled_callers(paced_server: tuple[str, Translator], pace: Pace) -> None:
    address, translator = paced_server

    async def main() -> None:
        async with AsyncClient(address) as client:

            async def leave(index: int) -> None:
                options = DecodingOptions(beam_size=1 + index % 4)
                if index % 2:
                    async with client.translate_stream(SOURCES[index], options=options) as stream:
                        await anext(stream)
                else:
                    task = asyncio.create_task(client.translate_many(SOURCES[:20], options=options))
                    await asyncio.sleep(index % 7 / 1_000)
                    task.cancel()

            await asyncio.gather(*(leave(index) for index in range(80)))

    asyncio.run(main())
    eventually(lambda: translator.engine.count_rows() == (0, 0))
    with Client(address) as client:
        assert client.translate(SOURCE).text == TARGET
