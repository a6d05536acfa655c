"""The signals that stop a server."""

import asyncio
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.signals import signals_in_loop
from triptych_serving.lifecycle import LifecycleOptions
from triptych_serving.observability.logs import CallIds, current_ids
from triptych_serving.server import _on_signal

from .calls import in_loop


@in_loop
async def test_a_signal_is_not_logged_with_the_call_that_it_interrupts() -> None:
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    async def call() -> None:
        current_ids.set(CallIds("request-1"))
        signal.raise_signal(signal.SIGTERM)

    with signals_in_loop(loop, lambda _: stopped.set_result(current_ids.get())):
        await asyncio.create_task(call())
        assert await stopped is None


def test_a_server_that_can_start_no_thread_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that has reached its limit of processes can start no thread, and must still stop."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    stops: list[bool] = []
    options = SimpleNamespace(lifecycle=LifecycleOptions())
    server: Any = SimpleNamespace(stopping=False, options=options, stop=lambda: stops.append(True))
    _on_signal(server)
    assert stops == [True]
