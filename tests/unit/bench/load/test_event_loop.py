"""The precise event loop, and interrupts."""

import asyncio
import gc
import os
import signal

import pytest

from triptych_bench.load.event_loop import Interrupt, StoppedError, run_precisely

from ..fakes import in_event_loop


def test_results_come_without_garbage_collection() -> None:
    async def work() -> str:
        assert not gc.isenabled()
        return "done"

    assert run_precisely(work) == "done"
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@in_event_loop
async def test_ctrl_c_ends_sleep_and_work() -> None:
    interrupt = Interrupt()
    with interrupt.handled():
        await interrupt.sleep(0.001)
        assert not interrupt.is_set
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedError):
            await interrupt.sleep(60)
        assert interrupt.is_set
        # The second one is for Python again.
        assert signal.getsignal(signal.SIGINT) is not None
    ended = False

    async def endless() -> None:
        nonlocal ended
        try:
            await asyncio.sleep(60)
        finally:
            ended = True

    interrupt = Interrupt()
    with interrupt.handled():
        assert await interrupt.unless(asyncio.sleep(0, "done")) == "done"
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedError):
            await interrupt.unless(endless())
    assert ended


def test_previous_handlers_are_restored() -> None:
    def other(*_: object) -> None:
        """A handler."""

    async def work() -> None:
        interrupt = Interrupt()
        with interrupt.handled():
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(StoppedError):
                await interrupt.sleep(60)
            assert signal.getsignal(signal.SIGTERM) is other
        assert signal.getsignal(signal.SIGTERM) is other

    before = signal.signal(signal.SIGTERM, other)
    try:
        asyncio.run(work())
    finally:
        signal.signal(signal.SIGTERM, before)
