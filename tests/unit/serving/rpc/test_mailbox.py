"""News from other threads for an event loop."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from triptych_serving.rpc.mailbox import Mailbox, mailbox


def in_thread(function: Callable[[], None]) -> None:
    """Run it there, and wait for it."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_all_is_called_in_order_and_the_loop_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_test_all_is_called_in_order_and_the_loop_woken_once(monkeypatch))


async def _test_all_is_called_in_order_and_the_loop_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    box, heard, woken = Mailbox(loop), [], 0
    wake = loop.call_soon_threadsafe

    def count(callback: Callable[[], object]) -> asyncio.Handle:
        nonlocal woken
        woken += 1
        return wake(callback)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)

    def post() -> None:
        for number in range(100):
            box.post(lambda number=number: heard.append(number))  # type: ignore[misc]

    in_thread(post)
    assert heard == []
    await asyncio.sleep(0)
    assert heard == list(range(100))
    assert woken == 1
    in_thread(post)
    await asyncio.sleep(0)
    assert heard == [*range(100), *range(100)]
    assert woken == 2


def test_posts_from_many_threads_are_all_heard() -> None:
    asyncio.run(_test_posts_from_many_threads_are_all_heard())


async def _test_posts_from_many_threads_are_all_heard() -> None:
    box, heard, done = Mailbox(asyncio.get_running_loop()), [], asyncio.Event()

    def hear() -> None:
        heard.append(1)
        if len(heard) == 8 * 500:
            done.set()

    def post() -> None:
        for _ in range(500):
            box.post(hear)

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(done.wait(), 30)
    for thread in threads:
        thread.join()


def test_what_a_callback_posts_is_heard_too() -> None:
    asyncio.run(_test_what_a_callback_posts_is_heard_too())


async def _test_what_a_callback_posts_is_heard_too() -> None:
    box, heard = Mailbox(asyncio.get_running_loop()), []
    box.post(lambda: box.post(lambda: heard.append(1)))
    await asyncio.sleep(0.01)
    assert heard == [1]


def test_each_loop_has_one() -> None:
    asyncio.run(_test_each_loop_has_one())


async def _test_each_loop_has_one() -> None:
    assert mailbox() is mailbox()


def test_a_closed_loop_hears_of_nothing() -> None:
    loop = asyncio.new_event_loop()
    box = Mailbox(loop)
    loop.close()
    box.post(lambda: pytest.fail("nobody is there"))
    del loop
    box.post(lambda: pytest.fail("nobody is there"))
