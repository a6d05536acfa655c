"""Calls of gRPC methods within the process."""

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from triptych.v1 import model_pb2
from triptych_serving.rpc.direct_calls import DirectContext, RpcError, call_stream

from ..calls import in_loop

REQUEST = model_pb2.ListModelsRequest()


def router_of(behaviour: Any) -> Any:
    return SimpleNamespace(handler=lambda _: SimpleNamespace(unary_stream=behaviour, stream_stream=None))


@in_loop
async def test_the_deadline_of_a_stream_ends_whichever_task_waits() -> None:
    async def endless(*_: object) -> AsyncIterator[bytes]:
        yield b""
        await asyncio.Event().wait()

    context = DirectContext("unix:", {}, deadline=time.monotonic() + 0.2)
    events = call_stream(router_of(endless), "", REQUEST, model_pb2.ListModelsResponse, context)
    assert await asyncio.create_task(anext(events)) == model_pb2.ListModelsResponse()  # type: ignore[arg-type]
    second = asyncio.create_task(anext(events))  # type: ignore[arg-type]
    assert (await asyncio.wait((second,), timeout=30))[0], "it waits without end"
    with pytest.raises(RpcError) as raised:
        await second
    assert raised.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert [event async for event in events] == []


@in_loop
async def test_the_deadline_of_a_stream_does_not_interrupt_who_reads_it() -> None:
    async def two(*_: object) -> AsyncIterator[bytes]:
        yield b""
        yield b""

    deadline = time.monotonic() + 0.05
    context = DirectContext("unix:", {}, deadline=deadline)
    events = call_stream(router_of(two), "", REQUEST, model_pb2.ListModelsResponse, context)
    async for _ in events:
        while time.monotonic() < deadline:  # sends the response
            await asyncio.sleep(0.01)
        break
    await events.aclose()
