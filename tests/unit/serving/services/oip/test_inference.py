"""Streams of requests, without a server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.services.oip.inference import IN_FLIGHT, UNREAD, InferStream

Response = pb.ModelStreamInferResponse


class Requests:
    """A number of requests; counts those that were read."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[pb.ModelInferRequest]:
        for number in range(self._count):
            self.taken += 1
            yield pb.ModelInferRequest(id=str(number))
            await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(2 * (IN_FLIGHT + UNREAD)):
        await asyncio.sleep(0)


async def answer_twice(request: pb.ModelInferRequest) -> AsyncGenerator[Response]:
    for part in ("a", "b"):
        await asyncio.sleep(0)
        yield Response(error_message=f"{request.id}{part}")


def test_every_request_is_answered_in_order() -> None:
    async def run() -> list[str]:
        return [one.error_message async for one in InferStream(answer_twice).responses(aiter(Requests(200)))]

    messages = asyncio.run(run())
    assert sorted(messages) == sorted(f"{number}{part}" for number in range(200) for part in "ab")
    assert all(messages.index(f"{number}a") < messages.index(f"{number}b") for number in range(200))


@pytest.mark.parametrize("with_ids", [False, True])
def test_requests_without_an_id_are_answered_in_order(with_ids: bool) -> None:
    async def answer(request: pb.ModelInferRequest) -> AsyncGenerator[Response]:
        number = int(request.model_version)
        for _ in range(3 * (9 - number)):  # later requests are done sooner
            await asyncio.sleep(0)
        yield Response(error_message=f"{number}a")
        yield Response(error_message=f"{number}b")

    async def requests() -> AsyncIterator[pb.ModelInferRequest]:
        for number in range(9):
            yield pb.ModelInferRequest(model_version=str(number), id=str(number) if with_ids else "")

    async def run() -> list[str]:
        return [one.error_message async for one in InferStream(answer).responses(requests())]

    ordered = [f"{number}{part}" for number in range(9) for part in "ab"]
    assert (asyncio.run(run()) == ordered) is not with_ids


def test_slow_reader_stops_the_stream() -> None:
    async def run() -> tuple[int, int]:
        requests = Requests(10_000)
        async with aclosing(InferStream(answer_twice).responses(aiter(requests))) as responses:
            await anext(responses)
            await settle()
            first = requests.taken
            for _ in range(100):
                await anext(responses)
            await settle()
            return first, requests.taken

    first, second = asyncio.run(run())
    assert UNREAD // 2 <= first <= IN_FLIGHT + UNREAD
    assert first < second <= first + 100


def test_requests_in_flight_end_with_the_stream() -> None:
    ended: list[str] = []

    async def answer(request: pb.ModelInferRequest) -> AsyncGenerator[Response]:
        try:
            yield Response(error_message=request.id)
            await asyncio.Event().wait()
        finally:
            ended.append(request.id)

    async def run() -> None:
        async with aclosing(InferStream(answer).responses(aiter(Requests(3)))) as responses:
            for _ in range(3):
                await anext(responses)
        await settle()

    asyncio.run(run())
    assert sorted(ended) == ["0", "1", "2"]
