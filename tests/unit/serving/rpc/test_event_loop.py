"""Callbacks from other threads for an event loop, and long work in threads."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from triptych_serving.errors import DeadlineError
from triptych_serving.rpc import event_loop
from triptych_serving.rpc.event_loop import INLINE_CHARACTERS, Mailbox, Offload, mailbox
from triptych_text.steps import Steps

from ..calls import in_loop

LONG = INLINE_CHARACTERS + 1


@pytest.mark.parametrize("platform", ["linux", "other"])
def test_callbacks_run_in_order_and_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(event_loop.sys, "platform", platform if platform == "other" else sys.platform)

    async def scenario() -> None:
        box, received, wakeups = Mailbox(asyncio.get_running_loop()), [], []
        wake = box._wake

        def count(loop: asyncio.AbstractEventLoop) -> None:
            wakeups.append(loop)
            wake(loop)

        monkeypatch.setattr(box, "_wake", count)

        def post() -> None:
            for number in range(100):
                box.post(lambda number=number: received.append(number))  # type: ignore[misc]

        for round_ in (1, 2):
            thread = threading.Thread(target=post)
            thread.start()
            thread.join()
            while len(received) < 100 * round_:
                await asyncio.sleep(0)
            assert received == [*range(100)] * round_
            assert len(wakeups) == round_

    asyncio.run(asyncio.wait_for(scenario(), 30))


@in_loop
async def test_callbacks_of_many_threads_all_run() -> None:
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


@in_loop
async def test_callback_may_post_another() -> None:
    assert mailbox() is mailbox()
    received: list[int] = []
    mailbox().post(lambda: mailbox().post(lambda: received.append(1)))
    await asyncio.sleep(0.01)
    assert received == [1]


def test_closed_loop_drops_callbacks() -> None:
    loop = asyncio.new_event_loop()
    box = Mailbox(loop)
    loop.close()
    box.post(lambda: pytest.fail("the loop is closed"))
    del loop
    box.post(lambda: pytest.fail("the loop is gone"))


def counting(steps: list[int], last: int) -> Steps[str]:
    for number in range(last):
        steps.append(number)
        yield
    return "done"


def test_short_work_runs_at_once_and_long_work_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "TURN_SECONDS", 1e-9)  # one step a turn

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            offload, one, other = Offload(pool), [0] * 0, [0] * 0
            assert await offload.run_steps(0, None, counting(one, 3)) == "done"
            one.clear()
            both = (offload.run_steps(LONG, None, counting(steps, 50)) for steps in (one, other))
            seen: list[int] = []
            watching = asyncio.create_task(watch(other, seen))
            assert await asyncio.gather(*both) == ["done", "done"]
            watching.cancel()
            assert one == other == [*range(50)]
            assert any(0 < count < 50 for count in seen)  # the loop ran in between

    async def watch(steps: list[int], seen: list[int]) -> None:
        while True:
            seen.append(len(steps))
            await asyncio.sleep(0)

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["cancelled", "expired", "cancelled in the queue"])
@in_loop
async def test_work_of_a_dead_call_has_no_further_turn(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(event_loop, "TURN_SECONDS", 1e-9)
    steps: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def work() -> Steps[None]:
        for number in range(1_000):
            steps.append(number)
            entered.set()
            go_on.wait(30)
            yield

    with ThreadPoolExecutor(1) as pool:
        if end == "cancelled in the queue":
            pool.submit(go_on.wait, 30)
        deadline = time.monotonic() + 0.05 if end == "expired" else None
        task = asyncio.create_task(Offload(pool).run_steps(LONG, deadline, work()))
        await (asyncio.sleep(0.01) if end == "cancelled in the queue" else asyncio.to_thread(entered.wait, 30))
        if end == "expired":
            await asyncio.sleep(0.1)
        else:
            task.cancel()
            await asyncio.wait([task])  # it does not wait for the thread
        go_on.set()
        with pytest.raises(DeadlineError if end == "expired" else asyncio.CancelledError):
            await task
    assert len(steps) == (0 if end == "cancelled in the queue" else 1)
