"""Streams of requests, without a server: requests are numbers, responses are texts."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from triptych_serving.rpc.request_stream import IN_FLIGHT, UNREAD, RequestStream


class Requests:
    """A number of requests; counts those that were read."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(self._count):
            self.taken += 1
            yield number
            await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(2 * (IN_FLIGHT + UNREAD)):
        await asyncio.sleep(0)


async def answer_twice(request: int) -> AsyncGenerator[str]:
    for part in ("a", "b"):
        await asyncio.sleep(0)
        yield f"{request}{part}"


def collect(stream: RequestStream[int, str], count: int) -> list[str]:
    async def run() -> list[str]:
        return [response async for response in stream.responses(aiter(Requests(count)))]

    return asyncio.run(run())


def test_the_responses_of_every_request_are_in_order() -> None:
    found = collect(RequestStream(answer_twice), 200)
    assert sorted(found) == sorted(f"{number}{part}" for number in range(200) for part in "ab")
    assert all(found.index(f"{number}a") < found.index(f"{number}b") for number in range(200))


@pytest.mark.parametrize("in_order", [True, False])
def test_requests_may_be_answered_in_order(in_order: bool) -> None:
    async def answer(request: int) -> AsyncGenerator[str]:
        for _ in range(3 * (9 - request)):  # later requests are done sooner
            await asyncio.sleep(0)
        yield f"{request}a"
        yield f"{request}b"

    ordered = [f"{number}{part}" for number in range(9) for part in "ab"]
    assert (collect(RequestStream(answer, lambda _: in_order), 9) == ordered) is in_order


def test_slow_reader_stops_the_stream() -> None:
    async def run() -> tuple[int, int]:
        requests = Requests(10_000)
        async with aclosing(RequestStream(answer_twice).responses(aiter(requests))) as responses:
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
    ended: list[int] = []

    async def answer(request: int) -> AsyncGenerator[str]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            ended.append(request)

    async def run() -> None:
        async with aclosing(RequestStream(answer).responses(aiter(Requests(3)))) as responses:
            for _ in range(3):
                await anext(responses)
        await settle()

    asyncio.run(run())
    assert sorted(ended) == [0, 1, 2]
