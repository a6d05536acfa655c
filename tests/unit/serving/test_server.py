"""The signals that stop a server."""

import asyncio
import signal
from typing import Any

import pytest

from triptych_serving import server as server_module
from triptych_serving.observability.logs import CallIds, current_ids

from .calls import in_loop


@in_loop
async def test_a_signal_is_not_logged_with_the_call_that_it_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(server_module, "_on_signal", lambda _: stopped.set_result(current_ids.get()))

    async def call() -> None:
        current_ids.set(CallIds("request-1"))
        signal.raise_signal(signal.SIGTERM)

    server: Any = None
    with server_module._stopped_by_signals(server):
        await asyncio.create_task(call())
        assert await stopped is None
