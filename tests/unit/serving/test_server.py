"""The signals that stop a server."""

import asyncio
import signal

from triptych.signals import signals_in_loop
from triptych_serving.observability.logs import CallIds, current_ids

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
