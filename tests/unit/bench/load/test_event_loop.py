"""Keeping time, and being interrupted."""

import asyncio
import gc
import os
import signal

import pytest

from triptych_bench.load.event_loop import Interrupt, StoppedError, run_precisely, without_garbage_collection


def test_nothing_is_collected_meanwhile() -> None:
    with without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_it_runs_and_returns() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    assert run_precisely(work) == "done"


def test_ctrl_c_ends_a_sleep_once() -> None:
    async def work() -> None:
        interrupt = Interrupt()
        with interrupt.handled():
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            with pytest.raises(StoppedError):
                await interrupt.sleep(60)
            assert interrupt.is_set
            # The second one is for Python again.
            assert signal.getsignal(signal.SIGINT) is not None

    asyncio.run(work())


def test_who_listened_before_does_so_again() -> None:
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


def test_ctrl_c_ends_work_that_has_no_end() -> None:
    async def endless() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def work() -> None:
        interrupt = Interrupt()
        with interrupt.handled():
            assert await interrupt.unless(asyncio.sleep(0, "done")) == "done"
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
            with pytest.raises(StoppedError):
                await interrupt.unless(endless())

    ended: list[bool] = []
    asyncio.run(work())
    assert ended == [True]


def test_a_sleep_without_an_interrupt_ends_by_itself() -> None:
    async def work() -> None:
        interrupt = Interrupt()
        with interrupt.handled():
            await interrupt.sleep(0.001)
        assert not interrupt.is_set

    asyncio.run(work())
