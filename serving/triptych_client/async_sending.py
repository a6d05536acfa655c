"""Sending requests that have one response, with retries; for asyncio."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import grpc

from triptych_client.call import Call
from triptych_client.status import error_of

Request = TypeVar("Request")
Response = TypeVar("Response")


async def send(method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]", request: Request, call: Call) -> Response:
    """One request's response; cancelling the task cancels the request. Raises TriptychClientError."""
    attempts = call.attempts()
    while True:
        try:
            return await method(request, timeout=attempts.remaining_seconds(), metadata=call.metadata)
        except grpc.RpcError as failure:
            pause = attempts.pause_after(error_of(failure, call.request_id, call.first_input))
        await asyncio.sleep(pause)


async def send_all(
    method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]", requests: Sequence[tuple[Request, Call]], concurrency: int
) -> list[Response]:
    """The responses, in the requests' order. Raises TriptychClientError: one failed; the others are cancelled."""
    places = asyncio.Semaphore(concurrency)

    async def send_one(request: Request, call: Call) -> Response:
        async with places:
            return await send(method, request, call)

    tasks = [asyncio.create_task(send_one(request, call)) for request, call in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
