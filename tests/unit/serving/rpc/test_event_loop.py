"""Callbacks from other threads for an event loop."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from triptych_serving.rpc.event_loop import Mailbox, mailbox


def test_callbacks_run_in_order_and_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        box, received, wakeups = Mailbox(loop), [], []
        wake = loop.call_soon_threadsafe

        def count(callback: Callable[[], object]) -> asyncio.Handle:
            wakeups.append(callback)
            return wake(callback)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)

        def post() -> None:
            for number in range(100):
                box.post(lambda number=number: received.append(number))  # type: ignore[misc]

        for round_ in (1, 2):
            thread = threading.Thread(target=post)
            thread.start()
            thread.join()
            await asyncio.sleep(0)
            assert received == [*range(100)] * round_
            assert len(wakeups) == round_

    asyncio.run(scenario())


def test_callbacks_of_many_threads_all_run() -> None:
    async def scenario() -> None:
        box, received, done = Mailbox(asyncio.get_running_loop()), [], asyncio.Event()

        def receive() -> None:
            received.append(1)
            if len(received) == 8 * 500:
                done.set()

        def post() -> None:
            for _ in range(500):
                box.post(receive)

        threads = [threading.Thread(target=post) for _ in range(8)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(done.wait(), 30)
        for thread in threads:
            thread.join()

    asyncio.run(scenario())


def test_callback_may_post_another() -> None:
    async def scenario() -> None:
        assert mailbox() is mailbox()
        received: list[int] = []
        mailbox().post(lambda: mailbox().post(lambda: received.append(1)))
        await asyncio.sleep(0.01)
        assert received == [1]

    asyncio.run(scenario())


def test_closed_loop_drops_callbacks() -> None:
    loop = asyncio.new_event_loop()
    box = Mailbox(loop)
    loop.close()
    box.post(lambda: pytest.fail("the loop is closed"))
    del loop
    box.post(lambda: pytest.fail("the loop is gone"))
