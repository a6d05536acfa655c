"""Many requests on one stream, of which each may have many responses.

Those without an id, whose answers nobody could tell apart, are answered in their order, as Triton answers all.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeAlias

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.rpc.request_stream import RequestStream

Request: TypeAlias = pb.ModelInferRequest
Response: TypeAlias = pb.ModelStreamInferResponse
IN_FLIGHT = 64  # requests that are read and not yet answered
UNREAD = 64  # responses that wait for a caller who is slow to read


class InferStream(RequestStream[Request, Response]):
    """One call's requests; the responses of one request are in order.

    Args:
        answer: all responses of one request; raises nothing.
    """

    def __init__(self, answer: Callable[[Request], AsyncGenerator[Response]]) -> None:
        super().__init__(IN_FLIGHT)
        self._answer = answer
        self._unread = asyncio.Semaphore(UNREAD)
        self._last = _happened()  # of the requests without an id

    def _serve(self, request: Request) -> Coroutine[Any, Any, None]:
        return self._answer_in_turn(request, *self._turn(request))

    def _on_sent(self) -> None:
        self._unread.release()

    def _turn(self, request: Request) -> tuple[asyncio.Event, asyncio.Event]:
        """When its first response may be sent, and what its last one makes happen."""
        answered = asyncio.Event()
        if request.id:
            return _happened(), answered
        before, self._last = self._last, answered
        return before, answered

    async def _answer_in_turn(self, request: Request, turn: asyncio.Event, answered: asyncio.Event) -> None:
        try:
            async with aclosing(self._answer(request)) as responses:
                async for response in responses:
                    await turn.wait()
                    await self._unread.acquire()
                    self._responses.put_nowait(response)
        finally:
            answered.set()
            self._room.release()


def _happened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
